/* The textbook equations of every cell, found by the cell's name. */
#ifndef BPPSA_TESTS_SUPPORT_CELL_REFERENCES_H
#define BPPSA_TESTS_SUPPORT_CELL_REFERENCES_H

#include <string.h>

#include "tests/support/gru_reference.h"
#include "tests/support/lstm_reference.h"
#include "tests/support/rnn_reference.h"

/* False: no cell has this name. */
static bool find_cell(const char *name, cell_reference *found) {
  static const cell_reference cells[] = {RNN_REFERENCE, GRU_REFERENCE, LSTM_REFERENCE};
  for (size_t i = 0; i < sizeof cells / sizeof cells[0]; ++i) {
    if (strcmp(name, cells[i].cell->name) == 0) {
      *found = cells[i];
      return true;
    }
  }
  return false;
}

#endif
