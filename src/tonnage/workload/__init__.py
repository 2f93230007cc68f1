"""What is to be done with a model: training, fine-tuning or serving, in which precision."""
