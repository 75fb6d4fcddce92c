"""Code of all engines that use AWS: signed requests, access keys and answers in XML."""
