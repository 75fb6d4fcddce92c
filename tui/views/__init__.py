"""What fills the screen between header and footer, one file per view."""
