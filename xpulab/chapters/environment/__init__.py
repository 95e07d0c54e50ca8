"""The room of the chapter environment: Is this machine ready?"""
