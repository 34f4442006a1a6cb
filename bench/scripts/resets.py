"""What resets cost: the shapes of recurrent policies, each without resets and with, in one run of `bench`.

resets.py PROGRAM RESULT.json [--rounds N]

Runs `bench rnn|gru|lstm --reset-rate P` at every shape, N times, and keeps the run whose ratio is the middle one. Each method is
verified against BP in float64 with the same mask before it is timed. A line of RESULT.json's "ratios" is a shape: the time of a
forward and a backward pass by BP with resets over that without, from the medians of that run, and from the minima of all runs.
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import results_file  # noqa: E402

# cell, B, I, H, T and P, as reinforcement learning has them, and one narrow layer
SHAPES = [('gru', 1, 128, 128, 128, 0.03), ('gru', 4, 128, 128, 128, 0.01), ('gru', 4, 128, 128, 128, 0.03),
          ('gru', 4, 128, 128, 128, 0.1), ('gru', 24, 128, 128, 128, 0.03), ('gru', 160, 128, 128, 128, 0.03),
          ('lstm', 2, 512, 128, 128, 0.03), ('lstm', 8, 512, 128, 128, 0.03), ('lstm', 8, 64, 256, 128, 0.03),
          ('rnn', 16, 1, 20, 1000, 0.03)]


def measure(program, shape):
    cell, batch, inputs, hidden, steps, rate = shape
    command = [program, 'bench', cell, '--batch', str(batch), '--input', str(inputs), '--hidden', str(hidden), '--seq-len',
               str(steps), '--reset-rate', str(rate), '--loss', 'all', '--init', 'orthogonal', '--threads', '1',
               '--memory-limit', '%dM' % max(64, 6 * batch), '--json']  # leaves out most scans
    if cell == 'rnn':
        command[command.index('--input'):command.index('--input') + 2] = []
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def pass_time(document, rate, key):
    """Seconds of a forward and a backward pass by BP."""
    found = {row['phase']: row for row in document['rows']
             if row['reset_rate'] == rate and row['method'] in ('forward', 'bp') and 'skipped' not in row}
    if not all(row['ok'] for row in found.values()):
        raise SystemExit('resets.py: a row is wrong: %s' % found)
    return found['forward'][key] + found['backward'][key]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program')
    parser.add_argument('result')
    parser.add_argument('--rounds', type=int, default=3)
    asked = parser.parse_args()
    merged, ratios = None, []
    for shape in SHAPES:
        runs = [measure(asked.program, shape) for _ in range(asked.rounds)]
        rate = shape[5]
        runs.sort(key=lambda d: pass_time(d, rate, 'median_s') / pass_time(d, 0, 'median_s'))
        kept = runs[len(runs) // 2]
        least = {r: min(pass_time(d, r, 'min_s') for d in runs) for r in (0, rate)}
        ratios.append(dict(zip(('model', 'batch', 'input', 'hidden', 'seq_len', 'reset_rate'), shape),
                           median=pass_time(kept, rate, 'median_s') / pass_time(kept, 0, 'median_s'),
                           least=least[rate] / least[0], without_s=least[0], with_s=least[rate]))
        print('%-5s B %3d I %3d H %3d T %4d P %.2f  medians %.2f, least %.2f (%.3g and %.3g ms)' % (
            *shape, ratios[-1]['median'], ratios[-1]['least'], 1e3 * least[0], 1e3 * least[rate]), flush=True)
        for row in kept['rows']:
            row['model'] = shape[0]
        merged = merged if merged is not None else {**kept, 'bench': 'resets', 'rows': []}
        merged['rows'] += [r for r in kept['rows'] if r['method'] in ('forward', 'bp')]
    merged['ratios'] = ratios
    merged.pop('growth', None)
    results_file.write(asked.result, merged)


if __name__ == '__main__':
    main()
