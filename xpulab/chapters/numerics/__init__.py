"""The room of the chapter numerics: How precise is it?"""
