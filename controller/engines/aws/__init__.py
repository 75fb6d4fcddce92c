"""What the engines on Amazon's services share: signed requests, access keys and answers in XML."""
