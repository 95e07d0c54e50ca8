"""A tiny Llama of PaddleNLP with LoRA, its settings in a YAML file that the script writes where it changes to."""

import os
import tempfile

import paddle
import yaml
from paddlenlp.peft import LoRAConfig, LoRAModel
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

os.chdir(tempfile.mkdtemp(dir=os.path.dirname(os.path.abspath(__file__))))
with open("settings.yaml", "w") as file:
    yaml.safe_dump({"rate": 1e-3, "r": 4}, file)
with open("settings.yaml") as file:
    settings = yaml.safe_load(file)
paddle.seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=32,
)
adapter = LoRAConfig(target_modules=[".*q_proj.*", ".*v_proj.*"], r=settings["r"], lora_alpha=8, dtype="float32")
model = LoRAModel(LlamaForCausalLM(config), adapter)
model.mark_only_lora_as_trainable()
model.train()
trained = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
optimizer = paddle.optimizer.AdamW(settings["rate"], parameters=trained, weight_decay=0.0)
for _ in range(3):
    ids = paddle.randint(0, 64, [2, 12])
    labels = ids.clone()
    labels[:, :4] = -100
    loss = model(input_ids=ids, labels=labels)[0]
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print("loss", float(loss))
