"""The queue of waiting jobs. It consists of lanes (jobs with equal requests), which an order plugin sorts."""
