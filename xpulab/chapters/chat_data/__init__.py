"""The room of the chapter chat_data: From conversations to batches."""
