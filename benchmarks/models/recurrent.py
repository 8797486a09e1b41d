"""Recurrent cells in a loop of the program's own: an LSTM by torch's cell, a GRU written out."""

from __future__ import annotations

import torch
from torch import nn


class LstmLoop(nn.Module):
    """[batch, time, width] -> states [batch, time, hidden]."""

    def __init__(self, width: int = 64, hidden: int = 64) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[0], self.cell.hidden_size)
        found = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            found.append(h)
        return torch.stack(found, dim=1)


class GruLoop(nn.Module):
    """[batch, time, width] -> last state [batch, hidden]."""

    def __init__(self, width: int = 64, hidden: int = 64) -> None:
        super().__init__()
        self.hidden = hidden
        self.seen, self.kept = nn.Linear(width, 3 * hidden), nn.Linear(hidden, 3 * hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], self.hidden)
        for seen in self.seen(x).unbind(1):
            reset, update, new = seen.chunk(3, dim=-1)
            kept_reset, kept_update, kept_new = self.kept(h).chunk(3, dim=-1)
            reset = torch.sigmoid(reset + kept_reset)
            update = torch.sigmoid(update + kept_update)
            h = torch.lerp(torch.tanh(new + reset * kept_new), h, update)
        return h
