"""Pictures of the plan: SVG images, HTML pages and PNG images."""
