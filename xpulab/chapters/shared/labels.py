"""The labels of figures in Chinese: matplotlib draws them where XPULAB_LANG is zh.

A chapter writes its labels in English, once. `draw_in_chinese` looks each text up when it is given to matplotlib; what is not
in the table stays as it is. The font has the characters of this table only: after a change `tools/make_font.py` makes it again.
"""

from __future__ import annotations

import re
from functools import cache

from matplotlib import font_manager, rcParams
from matplotlib.text import Text

from xpulab import files

FAMILY = "xpulab Chinese"
FONT = ("fonts", "labels-zh.otf")
"""The name of the font's family, and where its file is below data/."""

LABELS = {
    # axes and legends of several chapters
    "step": "步",
    "step {}": "第 {} 步",
    "loss": "损失",
    "before": "之前",
    "after": "之后",
    "rank {}": "进程 {}",
    "rank {}  (root cause)": "进程 {}  （根本原因）",
    "tokens": "token 数",
    "seconds": "秒",
    "time (ms)": "时间 (ms)",
    "loss (nats)": "损失 (nats)",
    "loss (nats per token)": "损失（nats 每 token）",
    "loss, nats per token": "损失，nats 每 token",
    "loss (nats/token)": "损失（nats 每 token）",
    "the model\nreads": "模型\n读到的",
    "its\nlabel": "它的\n标签",
    "learning rate {}": "学习率 {}",
    "weights": "权重",
    "gradients": "梯度",
    "activations": "激活值",
    "optimizer": "优化器",
    "parameters": "参数",
    "forward": "前向",
    "backward": "反向",
    "padding": "填充",
    "question": "问题",
    "answer": "答案",
    "training": "训练",
    # 00
    "PCI bus": "PCI 总线",
    "driver:\ndevice nodes": "驱动：\n设备节点",
    "vendor's\ntool": "厂商\n工具",
    "Cards that each part sees; in one lane the numbers must agree": "每个部分看到的卡；同一行的数必须一致",
    "All cards computed the same bits": "所有卡算出的结果逐位相同",
    "Suspects: {}": "可疑的卡：{}",
    "memory of the host, numpy": "主机内存，numpy",
    "memory of {}, Paddle": "{} 的显存，Paddle",
    "{} {}, {} bytes": "{} {}，{} 字节",
    "A copy leads from one memory to the other; device: {}": "一次复制从一个内存到另一个；设备：{}",
    "A copy leads from one memory to the other; device: {} (the same chips here)": "一次复制从一个内存到另一个；"
    "设备：{}（这里是同样的芯片）",
    "Fewer bits make larger steps: numbers between 1 and 1.05": "位越少，台阶越大：1 到 1.05 之间的数",
    "simulated": "模拟卡",
    "processor": "处理器",
    "number that is stored": "存入的数",
    "number that is read back": "读回的数",
    "Copies": "复制",
    "addition": "加法",
    "product of n x n matrices": "n x n 矩阵的乘积",
    "operations per byte, FLOP/byte": "每字节的运算次数，FLOP/byte",
    "Computations": "计算",
    "Rates of {} in float32, measured on this machine": "{} 的速率，float32，在这台机器上实测",
    "memory: {} GB/s": "内存：{} GB/s",
    "arithmetic: {} GFLOP/s": "运算：{} GFLOP/s",
    "{}: {} different values": "{}：{} 个不同的值",
    "mean squared error": "均方误差",
    "The line is found within 80 steps": "80 步之内找到了直线",
    # 01
    "{} tokens, and the loss counts {} labels: the answer's": "{} 个 token，损失只计 {} 个标签：答案的",
    "batch {}": "批 {}",
    "{}: {} % padding": "{}：{} % 是填充",
    "... prompt": "... 提示词",
    "answer ...": "答案 ...",
    "in their order": "按原来的顺序",
    "sorted": "排序之后",
    "in their order: {} % padding": "按原来的顺序：{} % 是填充",
    "sorted: {} % padding": "排序之后：{} % 是填充",
    "A few steps are enough for a handful of facts": "少量事实，几步就够",
    "right answers, %": "正确的答案，%",
    "What it learned, and what it kept": "学到了什么，保住了什么",
    "labels": "标签",
    # 02
    "The label of each position is the token of the next one; -100 does not count": "每个位置的标签是"
    "下一个位置的 token；-100 不计入",
    "What each token of example {} may read": "样本 {} 的每个 token 可以读到什么",
    "One row per example, padded on the left": "每个样本一行，在左侧填充",
    "position (token)": "位置（token）",
    "example": "样本",
    "position that is read": "被读的位置",
    "position that reads": "读的位置",
    "training loss": "训练损失",
    "a uniform guess, ln V": "均匀猜测，ln V",
    "optimizer step": "优化器步数",
    "rate {}": "学习率 {}",
    "rate {} (too low)": "学习率 {}（太低）",
    "rate {} (as in the lesson)": "学习率 {}（与课程中相同）",
    "rate {} (too high)": "学习率 {}（太高）",
    "A rate can be too low, and too high": "学习率可能太低，也可能太高",
    "The loss falls from a uniform guess to almost zero": "损失从均匀猜测降到几乎为零",
    "The loss falls": "损失下降",
    # 03
    "Two thin matrices: {} as many parameters as the weight that they change": "两个瘦长的矩阵：参数是它们所改变的权重的 {}",
    "frozen\n{} parameters": "冻结\n{} 个参数",
    "trainable\n{} x {}\n{} parameters": "可训练\n{} x {}\n{} 个参数",
    "The larger the model, the smaller the share of an adapter of rank {}": "模型越大，秩为 {} 的适配器所占的比例越小",
    "this model": "这个模型",
    "model": "模型",
    "adapter": "适配器",
    "{}  ({} of both)": "{}  （占两者的 {}）",
    "parameters (logarithmic scale)": "参数个数（对数坐标）",
    "Full fine-tuning ends lower": "全量训练的终点更低",
    "LoRA's change ends at rank {}": "LoRA 的改变止于秩 {}",
    "number of the singular value": "奇异值的序号",
    "share of the largest": "与最大值之比",
    "full fine-tuning": "全量训练",
    "Each variant (solid) and plain {} (dashed)": "各种变体（实线）与普通 {}（虚线）",
    "rank r = {}": "秩 r = {}",
    "A higher rank learns faster, with more parameters": "秩越高学得越快，参数也越多",
    # 04
    "The loss falls as h grows (β = {})": "h 越大，损失越低（β = {}）",
    "gap {}": "差 {}",
    "chosen": "优势答案",
    "rejected": "劣势答案",
    "ln p of an answer (nats)": "一个答案的 ln p (nats)",
    "ln p of the answer (nats)": "答案的 ln p (nats)",
    "h on held-out pairs (nats)": "留出答案对上的 h (nats)",
    "A large β keeps the policy near the reference model": "β 大，策略就离参考模型近",
    "Both answers begin at the same position, and do not see each other": "两个答案从同一个位置开始，互相看不见",
    "position": "位置",
    "token that is read (dark)": "被读的 token（深色）",
    "token that reads": "读的 token",
    "policy": "策略",
    "reference": "参考模型",
    "before training": "训练之前",
    "this pair": "这一对",
    # 05
    "Activations are most of what a step needs": "一步所需的显存大部分是激活值",
    "Recomputed layers exist one at a time": "重计算的层一次只存在一个",
    "Four small peaks instead of one": "四个小峰代替一个大峰",
    "Moments come for the update": "矩只在更新时到来",
    "A tensor at a time": "一次一个张量",
    "{}: peak {} MiB": "{}：峰值 {} MiB",
    "buffer {}": "缓冲区 {}",
    "MiB on the device": "设备上的 MiB",
    "bytes from the beginning of the buffer; grey: filled with zeros": "从缓冲区开头起的字节；灰色：用零填充",
    "Each gradient has its slot, and no two slots overlap": "每个梯度都有自己的位置，没有两个位置重叠",
    "tensors saved and used, in order": "张量按顺序保存和使用",
    "peak of a step (MiB)": "一步的峰值 (MiB)",
    "What each way needs": "每种方法需要多少",
    "time of a step (ms)": "一步的时间 (ms)",
    "What it costs on this device": "在这台设备上的代价",
    # 06
    "after step {}": "第 {} 步之后",
    "moments of the optimizer": "优化器的矩",
    "where the run stands": "运行到哪里",
    "configuration, tokenizer": "配置，分词器",
    "What differs between resumed runs and an uninterrupted one": "恢复的运行与不中断的运行有何不同",
    "size (kB, logarithmic)": "大小（kB，对数）",
    "Weights and moments are nearly all of a checkpoint": "检查点几乎全是权重和矩",
    "equal": "相同",
    "an epoch ends": "一轮结束",
    "Time to save": "保存的时间",
    "Time to load": "加载的时间",
    "Rise of memory in a save": "保存时内存的增加",
    "Rise of memory in a load": "加载时内存的增加",
    "the disk itself": "磁盘本身",
    "size of the tensors (MB)": "张量的大小 (MB)",
    "from the checkpoint": "来自检查点",
    # 07
    "names it": "指出问题",
    "error": "错误",
    "no effect": "没有影响",
    "SILENT": "静默",
    "What loading says of a damaged file": "加载时对损坏的文件的反应",
    "What a kill in a save leaves behind": "保存中被杀死后留下什么",
    "newest complete": "最新的完整检查点",
    "incomplete": "不完整",
    "complete, older": "完整，较旧",
    # 08
    "Two files that belong together: operators in order, and weights": "两个配套的文件：按顺序的算子，以及权重",
    "only the .json\nhas these names": "只有 .json\n有这些名称",
    "Python code\nof the layer": "层的\nPython 代码",
    "record": "记录",
    "{}: {} bytes": "{}：{} 字节",
    # 09
    "What each rank holds": "每个进程持有什么",
    "result": "结果",
    "All to all: the rows of one matrix are the columns of the other": "all to all：一个矩阵的行是另一个矩阵的列",
    "Ring: in each step every rank sends one chunk to the next rank": "环：每一步每个进程都向下一个进程发送一块",
    "Tree: sums go to rank 0, the result goes back": "树：和汇聚到进程 0，结果再传回去",
    "all_reduce over {} ranks: small messages cost their latency": "{} 个进程的 all_reduce：小消息的代价是延迟",
    "algorithm bandwidth": "算法带宽",
    "bus bandwidth": "总线带宽",
    "message (bytes)": "消息（字节）",
    "bandwidth (GB/s)": "带宽 (GB/s)",
    "GB/s from rank to rank: darker is faster": "进程之间的 GB/s：越深越快",
    "from {}": "从 {}",
    "to {}": "到 {}",
    "own work": "自己的工作",
    "waits for the other ranks": "等待其他进程",
    "time since the first step began (s)": "从第一步开始的时间 (s)",
    "One round: rank {} works longest, and the others wait": "一轮：进程 {} 工作最久，其他进程等待",
    "All ranks but one wait in all_reduce": "除一个进程外都在 all_reduce 中等待",
    "computes": "计算",
    "waits in all_reduce": "在 all_reduce 中等待",
    "start": "开始",
    # 10
    "A 4 x 6 table under three placements: each rank's part is coloured": "三种切分状态下的 4 x 6 表：每个进程持有的部分有颜色",
    "drop the rest": "丢弃其余部分",
    "Three reshards of a 6 x 3 table between two ranks": "一个 6 x 3 的表在两个进程之间的三种重切分",
    "Ranks that hold an element, on a mesh of [[0, 1], [2, 3]]": "持有一个元素的进程，mesh 为 [[0, 1], [2, 3]]",
    "A column-parallel and a row-parallel layer: one all-reduce for both": "一个列切的层和一个行切的层："
    "两者共用一次 all-reduce",
    "then the bias,\nonce": "然后加偏置，\n只加一次",
    "x\n{}\non both ranks": "x\n{}\n两个进程上都有",
    "sum\n{} ...": "和\n{} ...",
    "summand\n{} ...": "加数\n{} ...",
    "wide, Shard(1)\n{} here": "wide，Shard(1)\n这里 {}",
    "narrow, Shard(0)\n{} here": "narrow，Shard(0)\n这里 {}",
    "Along dp ranks read different samples, along mp they hold different columns": "沿 dp 读取不同的样本，沿 mp 持有不同的列",
    "AutoTrainer, {}: each holds {} of a query weight": "AutoTrainer，{}：每个进程持有 query 权重的 {}",
    "rank {} reads": "进程 {} 读取",
    "holds {}": "持有 {}",
    "one process, the plain loop": "单进程，普通的循环",
    "loss (nats per letter)": "损失（nats 每字母）",
    "Two trainings by AutoTrainer have the losses of one process": "AutoTrainer 的两次训练与单进程的损失相同",
    # 11
    "a card: {} GiB": "一张卡：{} GiB",
    "a card of {} GiB": "一张 {} GiB 的卡",
    "GiB, without any sharing": "GiB，不做任何切分",
    "What a training keeps for its parameters, and one card": "训练为参数保留的内容，与一张卡",
    "GiB (dotted line: a card)": "GiB（点线：一张卡）",
    "What a card holds": "一张卡持有什么",
    "GiB in a step (logarithmic)": "一步的 GiB（对数）",
    "What a card sends": "一张卡发送什么",
    "sent by a card in a step (GiB)": "一张卡在一步中发送 (GiB)",
    "memory of a card (GiB)": "一张卡的显存 (GiB)",
    "legal": "合法",
    "frontier": "前沿",
    "{}: less memory costs more traffic": "{}：省显存的代价是更多通信",
    "{} cards: {} legal": "{} 张卡：{} 个合法方案",
    "{} on {} cards: {}": "{}，{} 张卡：{}",
    "layers\n{} to {}": "层\n{} 到 {}",
    "{}\n{} samples\nstate {} of {}": "{}\n{} 个样本\n状态 {} / {}",
    "card {}": "卡 {}",
    "cards {} to {}": "卡 {} 到 {}",
    # 12
    "data parallel": "数据并行",
    "sharding, stage 1": "sharding，stage 1",
    "tensor parallel": "张量并行",
    "pipeline": "流水线",
    "Each rank gets every other batch": "每个进程隔一批取一批",
    "A step of two ranks (schematic; dark: they exchange numbers)": "两个进程的一步（示意；深色：交换数据）",
    "share of what one card holds": "与单卡所持之比",
    "What the fullest rank holds": "最满的进程持有什么",
    "forward, rows 0-3": "前向，行 0-3",
    "forward, rows 4-7": "前向，行 4-7",
    "mean of gradients": "梯度的平均",
    "AdamW, half": "AdamW，一半",
    "waits": "等待",
    "AdamW's moments": "AdamW 的矩",
    "layer": "层",
    # 13
    "Each rank holds consecutive layers": "每个进程持有连续的几层",
    "tokens\n{}": "token\n{}",
    "activations\n{}": "激活值\n{}",
    "{}: {} % of the time is bubble": "{}：{} % 的时间是气泡",
    "time (forward passes of one micro-batch through all layers of a rank)": "时间（单位：一个 micro-batch "
    "在一个进程所有层上的前向）",
    "Activations in the memory of rank {}": "进程 {} 显存中的激活值",
    "{}, at most {}": "{}，最多 {}",
    "micro-batches kept": "保留的 micro-batch 数",
    "forward, second stage": "前向，第二个阶段",
    "backward, second stage": "反向，第二个阶段",
    "bubble": "气泡",
    # 14
    "The gate sends each token to the experts with the highest probabilities": "门控把每个 token 送给概率最高的专家",
    "Each expert takes {} choices and drops the others": "每个专家接受 {} 个选择，丢弃其余的",
    "expert {}": "专家 {}",
    "expert": "专家",
    "taken, up to the capacity": "接受，直到容量",
    "taken": "接受",
    "dropped": "丢弃",
    "capacity": "容量",
    "Dispatch: each row goes to its expert's rank": "分发：每一行送到其专家所在的进程",
    "after all-to-all": "all-to-all 之后",
    # 15
    "The number in a slice is the rank that holds it": "切片中的数字是持有它的进程",
    "Loading a checkpoint of {} MiB: the ranks share the files": "加载 {} MiB 的检查点：各进程分担文件",
    "worst rank": "最差的进程",
    "size of the checkpoint / ranks": "检查点的大小 / 进程数",
    "ranks that load": "加载的进程数",
    "peak above own tensors (MiB)": "超出自有张量的峰值 (MiB)",
    # 16
    "A plain save of {} MB after every second step stops the loop": "每两步普通保存 {} MB，循环就要停下",
    "copy": "复制",
    "background write": "后台写入",
    "plain save": "普通保存",
    "Training continues while a thread writes; a plain save stops it": "线程写入时训练继续；普通保存会让它停下",
    "forward, backward, update": "前向，反向，更新",
    "waits for the save": "等待保存",
    # 17
    "bits of the fraction that come back": "返回的尾数位数",
    "What each operator keeps; lines: what the type has": "每个算子保留的位；横线：该类型拥有的位",
    "bound": "界",
    "terms of each sum": "每个和的项数",
    "error / largest result": "误差 / 最大结果",
    "Errors grow with the length of a sum, and with lost bits": "误差随求和的长度和丢失的位增长",
    "correlation / its deviation": "相关系数 / 其标准差",
    "A block that occurs twice shows at its distance": "出现两次的块在其距离处显现",
    "drawn": "抽取的",
    "each block twice": "每块两次",
    "ten bits less": "少十位",
    "calls in one step": "一步中的调用次数",
    "A few operators make up a training step": "少数算子构成一个训练步",
    "weight": "权重",
    "Without a master weight, small updates are lost": "没有主权重，小的更新会丢失",
    # 18
    "Views of one memory: filled squares belong to the view": "同一内存的视图：填充的方格属于该视图",
    "A row that is read twice gets the sum of two gradients": "被读两次的行得到两个梯度之和",
    "row {} of x, gradient {}": "x 的第 {} 行，梯度 {}",
    "row {} of the result": "结果的第 {} 行",
    # 19
    "Both packages make the same steps from the same weights": "从相同的权重开始，两者的每一步都相同",
}
"""By English label the Chinese one. {} stands for what the chapter computes, in the same order in both."""


def draw_in_chinese() -> None:
    """From now on matplotlib draws the labels of the table in Chinese, in the font of this repository beside its own."""
    font_manager.fontManager.addfont(str(files.data(*FONT)))
    rcParams["font.family"] = ["DejaVu Sans", FAMILY]
    set_english = Text.set_text

    def set_text(self: Text, label: object) -> None:
        set_english(self, chinese(label) if isinstance(label, str) else label)

    Text.set_text = set_text  # type: ignore[method-assign, assignment]


@cache
def chinese(label: str) -> str:
    """The label in Chinese; one that is not in the table stays as it is."""
    if label in LABELS:
        return LABELS[label]
    for pattern, translated in _patterns():
        if values := pattern.fullmatch(label):
            return translated.format(*(chinese(value) for value in values.groups()))
    return label


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """The labels with values, those with the most letters first."""
    labels = sorted((label for label in LABELS if "{}" in label), key=len, reverse=True)
    return [(re.compile("(.+?)".join(map(re.escape, label.split("{}"))), re.DOTALL), LABELS[label]) for label in labels]
