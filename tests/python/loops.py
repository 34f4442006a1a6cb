"""Recurrent layers as a loop over steps in PyTorch's own cells: what a layer with resets and lengths means."""
import torch

CELLS = {"GRU": torch._VF.gru_cell, "tanh": torch._VF.rnn_tanh_cell, "relu": torch._VF.rnn_relu_cell}


def walk(layer, number, x, state, masks, lengths, order):
    """One direction of one layer: h and of an LSTM c of every step, and the last state. masks[t]: where it begins anew in front of
    its step t, with the layer's row of a learned reset state if it has one."""
    learned = getattr(layer, "reset_state", None)
    begins = [torch.zeros_like(part) for part in state] if learned is None else \
        [row.expand(len(state[0]), -1) for row in learned[number].chunk(len(state))]
    weights = [getattr(layer, name) for name in layer._all_weights[number]]
    weights += [None] * (4 - len(weights))
    cell = CELLS.get(getattr(layer, "nonlinearity", "GRU"))
    found = [None] * len(x)
    for t in order:
        begun = [torch.where(masks[t].unsqueeze(1), new, part) for new, part in zip(begins, state)]
        new = torch._VF.lstm_cell(x[t], begun, *weights) if len(state) == 2 else [cell(x[t], begun[0], *weights)]
        runs = (t < lengths).unsqueeze(1)
        found[t] = [torch.where(runs, part, torch.zeros_like(part)) for part in new]
        state = [torch.where(runs, part, old) for part, old in zip(new, state)]
    return [torch.stack(parts) for parts in zip(*found)], state


def outputs(layer, x, start=None, resets=None, lengths=None):
    """Of a layer of torch.nn, or of ours, without dropout, on x [T,B,I]: h_1 .. h_T of the last layer [T,B,D·H], 0 behind a
    sample's end; the last states [L·D,B,H], a list of one or of an LSTM two; and c_1 .. c_T, or None."""
    steps, batch = x.shape[:2]
    pair = type(layer).__name__ == "LSTM"
    resets = torch.zeros(steps, batch, dtype=torch.bool) if resets is None else resets.bool()
    lengths = torch.full((batch,), steps) if lengths is None else torch.as_tensor(lengths)
    behind = torch.cat([resets[1:], resets.new_zeros(1, batch)]) & (torch.arange(steps).unsqueeze(1) + 1 < lengths)
    lasts, rows = [], [x]
    directions = 2 if layer.bidirectional else 1
    for number in range(layer.num_layers * directions):
        zeros = x.new_zeros(batch, layer.hidden_size)
        state = [zeros] * (1 + pair) if start is None else [part[number] for part in start]
        back = number % 2 == 1 and layer.bidirectional
        order = range(steps - 1, -1, -1) if back else range(steps)
        found, last = walk(layer, number, rows[0], state, behind if back else resets, lengths, order)
        lasts.append(last)
        both = found if not back else [torch.cat(sides, 2) for sides in zip(side, found)]
        side = found
        rows = both if back or directions == 1 else rows
    return rows[0], [torch.stack(parts) for parts in zip(*lasts)], rows[1] if pair else None
