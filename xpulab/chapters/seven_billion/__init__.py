"""The room of the chapter seven_billion: From a folder to a server."""
