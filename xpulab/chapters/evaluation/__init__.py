"""The room of the chapter evaluation: Is it better, and is it healthy?"""
