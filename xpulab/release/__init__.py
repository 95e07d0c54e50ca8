"""The notebooks that judge a release of Paddle and PaddleNLP: a folder for each, with its grids and its faults."""
