#!/usr/bin/env python3
"""PPO with a GRU on a task that needs memory: a cue is shown at the first step of an episode, and asked for at its last one.

    python3 examples/python/recurrent_ppo.py [--updates 80] [--seeds 1] [--torch | --both]

Episodes have random lengths, so that a rollout [T,B] holds several of them in a row. The mask `begins` says in front of which steps
an episode begins. bppsa.torch.GRU takes it as `resets`; --torch goes through the steps in a loop of torch.nn.GRUCell and puts zeros
into the state, as most implementations of PPO do. --both trains with both, by all seeds. A first line compares the first update of
both: the same weights within 1e-5, or exit code 1.
"""
import argparse
import statistics
import sys
import time

import numpy as np
import torch

import bppsa.torch

CUES, SHORTEST, LONGEST = 4, 4, 12
ENVIRONMENTS, STEPS, HIDDEN = 16, 64, 32
EPOCHS, GROUPS = 4, 2  # passes through a rollout, and groups of environments in each
DISCOUNT, TRACE, CLIP, ENTROPY, VALUE, NORM, RATE = 0.95, 0.95, 0.2, 0.01, 0.5, 0.5, 3e-3


class Recall:
    """Environments that run beside each other. The first observation of an episode has the cue (one of CUES), the last one asks for
    it; all others are 0. The reward of the last step is 1 for the cue's action, otherwise 0."""

    def __init__(self, count, generator):
        self.generator = generator
        self.cue, self.length, self.step = (np.zeros(count, np.int64) for _ in range(3))
        self.begin(np.ones(count, bool))

    def begin(self, which):
        self.cue[which] = self.generator.integers(0, CUES, which.sum())
        self.length[which] = self.generator.integers(SHORTEST, LONGEST + 1, which.sum())
        self.step[which] = 0

    def observe(self):
        """[B, CUES + 1]"""
        seen = np.zeros((len(self.cue), CUES + 1), np.float32)
        seen[np.arange(len(self.cue)), self.cue] = self.step == 0
        seen[:, CUES] = self.step == self.length - 1
        return seen

    def act(self, actions):
        """Rewards, and which episodes have ended: the next observation is the first one of another."""
        ended = self.step == self.length - 1
        rewards = (ended & (actions == self.cue)).astype(np.float32)
        self.step += 1
        self.begin(ended)
        return rewards, ended


class Loop(torch.nn.Module):
    """A GRU as a loop of cells, with zeros in the states of samples that begin anew."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.cell = torch.nn.GRUCell(inputs, hidden)

    def forward(self, x, h, resets):
        h, outputs = h[0], []
        for step, begins in zip(x, resets):
            h = self.cell(step, torch.where(begins.unsqueeze(1), torch.zeros_like(h), h))
            outputs.append(h)
        return torch.stack(outputs), h.unsqueeze(0)


class Agent(torch.nn.Module):
    def __init__(self, by_torch):
        super().__init__()
        self.gru = (Loop if by_torch else bppsa.torch.GRU)(CUES + 1, HIDDEN)
        self.policy, self.value = torch.nn.Linear(HIDDEN, CUES), torch.nn.Linear(HIDDEN, 1)

    def forward(self, seen, h, begins):
        """Logits [T,B,CUES], values [T,B] and the last state [1,B,H], from observations [T,B,CUES + 1], the first state and where
        episodes begin, bool [T,B]."""
        outputs, h = self.gru(seen, h, begins)
        return self.policy(outputs), self.value(outputs).squeeze(-1), h


class Training:
    def __init__(self, seed, by_torch):
        torch.manual_seed(seed)
        self.agent = Agent(by_torch)
        self.adam = torch.optim.Adam(self.agent.parameters(), lr=RATE, eps=1e-5)
        self.world = Recall(ENVIRONMENTS, np.random.default_rng(seed))
        self.begins = torch.ones(ENVIRONMENTS, dtype=torch.bool)
        self.state = torch.zeros(1, ENVIRONMENTS, HIDDEN)
        self.seconds = []  # of updates

    def collect(self):
        """A rollout of STEPS steps, and its share of episodes that ended with the right action."""
        rows, rewards, first, ended = [], [], self.state, 0
        with torch.no_grad():
            for _ in range(STEPS):
                seen, begins = torch.from_numpy(self.world.observe()), self.begins
                logits, value, self.state = self.agent(seen.unsqueeze(0), self.state, begins.unsqueeze(0))
                chosen = torch.distributions.Categorical(logits=logits[0])
                action = chosen.sample()
                reward, done = self.world.act(action.numpy())
                rows.append((seen, begins, action, chosen.log_prob(action), value[0]))
                rewards.append(torch.from_numpy(reward))
                self.begins, ended = torch.from_numpy(done), ended + done.sum()
            after = self.agent(torch.from_numpy(self.world.observe()).unsqueeze(0), self.state, self.begins.unsqueeze(0))[1][0]
        seen, begins, action, log, value = (torch.stack(column) for column in zip(*rows))
        rewards = torch.stack(rewards)
        advantages, running = torch.zeros_like(value), torch.zeros(ENVIRONMENTS)
        for t in reversed(range(STEPS)):  # generalised advantage estimation (Schulman et al. 2016, equation 16)
            goes_on = (~(begins[t + 1] if t + 1 < STEPS else self.begins)).float()
            error = rewards[t] + DISCOUNT * goes_on * (value[t + 1] if t + 1 < STEPS else after) - value[t]
            running = error + DISCOUNT * TRACE * goes_on * running
            advantages[t] = running
        return (seen, begins, action, log, advantages, advantages + value, first), rewards.sum().item() / max(1, ended)

    def update(self, rollout):
        """PPO's clipped objective (Schulman et al. 2017, equations 7 and 9), in groups of environments with all their steps."""
        *columns, first = rollout
        began = time.perf_counter()
        for _ in range(EPOCHS):
            for group in torch.randperm(ENVIRONMENTS).chunk(GROUPS):
                seen, begins, action, old, advantage, target = (column[:, group] for column in columns)
                logits, value, _ = self.agent(seen, first[:, group], begins)
                chosen = torch.distributions.Categorical(logits=logits)
                ratio = (chosen.log_prob(action) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                objective = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
                loss = VALUE * (value - target).square().mean() - objective - ENTROPY * chosen.entropy().mean()
                self.adam.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.agent.parameters(), NORM)
                self.adam.step()
        self.seconds.append(time.perf_counter() - began)


def compare():
    """The largest difference between the weights of both behind the first update, from the same weights and the same rollout."""
    both = [Training(0, by_torch) for by_torch in (False, True)]
    rollout, _ = both[0].collect()
    for training in both:
        torch.manual_seed(1)
        training.update(rollout)
    return max((one - other).abs().max().item() for one, other in zip(*(each.agent.parameters() for each in both)))


def train(seed, updates, by_torch):
    """The mean return of the last ten rollouts, and the seconds of an update."""
    training, returns = Training(seed, by_torch), []
    for number in range(updates):
        rollout, mean = training.collect()
        training.update(rollout)
        returns.append(mean)
        if (number + 1) % max(1, updates // 4) == 0:
            print(f"  seed {seed}  update {number + 1:3d}  return {statistics.mean(returns[-10:]):.3f}  update in "
                  f"{1e3 * statistics.median(training.seconds):.1f} ms", flush=True)
    return statistics.mean(returns[-10:]), statistics.median(training.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=80)
    parser.add_argument("--seeds", type=int, default=1)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--torch", action="store_true", help="by a loop of torch.nn.GRUCell")
    which.add_argument("--both", action="store_true", help="by bppsa.torch.GRU and by the loop")
    options = parser.parse_args()
    if options.updates < 1 or options.seeds < 1:
        parser.error(f"--updates is {options.updates} and --seeds {options.seeds}, expected 1 or more")
    torch.set_num_threads(1)
    difference = compare()
    print(f"first update: the weights of both differ by at most {difference:.1e}")
    if difference > 1e-5:
        sys.exit("recurrent_ppo.py: the first updates differ by more than 1e-5")
    found = {}
    for by_torch in (False, True) if options.both else (options.torch,):
        name = "torch.nn.GRUCell" if by_torch else "bppsa.torch.GRU"
        print(name)
        found[name] = [train(seed, options.updates, by_torch) for seed in range(options.seeds)]
    for name, results in found.items():
        returns, seconds = zip(*results)
        print(f"{name}: returns {min(returns):.3f} .. {max(returns):.3f} of 1, {1 / CUES} without memory; an update in "
              f"{1e3 * statistics.median(seconds):.1f} ms")


if __name__ == "__main__":
    main()
