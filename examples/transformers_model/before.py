"""Sentence embeddings: a BERT of `transformers`, and the mean of each sentence's tokens.

The lengths of the sentences are taken out of the mask as Python numbers, to cut the padding off.
"""

import torch
from transformers import BertConfig, BertModel

import graftjit


class Embedder(torch.nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.encoder = BertModel(config, add_pooling_layer=False)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        lengths = mask.sum(dim=1).tolist()
        means = [hidden[row, :length].mean(dim=0) for row, length in enumerate(lengths)]
        return torch.nn.functional.normalize(torch.stack(means), dim=-1)


def make() -> torch.nn.Module:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=1000,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
    )
    return Embedder(config).eval().requires_grad_(False)


def calls() -> list[tuple]:
    """Batches of twenty sentences of up to 24 tokens; every batch has lengths of its own."""
    random = torch.Generator().manual_seed(1)
    batches = []
    for _ in range(12):
        tokens = torch.randint(1000, (20, 24), generator=random)
        lengths = torch.randint(4, 25, (20, 1), generator=random)
        batches.append((tokens, (torch.arange(24) < lengths).long()))
    return batches


if __name__ == "__main__":
    embed = graftjit.compile(make())
    for tokens, mask in calls():
        embed(tokens, mask)
    graftjit.report(embed).show()
