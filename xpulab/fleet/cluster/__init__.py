"""The same run on many nodes: engines that start a task on each, what a task does there, what came back."""
