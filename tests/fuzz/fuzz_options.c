/* Reader: cli/options.c, the command line. The part is a command line, its words separated by bytes 0 or by line feeds; options:
 * the command. Nothing is run. */
#include <string.h>

#include "cli/command.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_WORDS = 32 };

static const bppsa_command *command_at(uint8_t options) {
  int count = 0;
  while (bppsa_commands()[count] != NULL) {
    ++count;
  }
  return bppsa_commands()[options % count];
}

bppsa_status fuzz_run(const fuzz_input *input) {
  static bppsa_option_value values[BPPSA_OPTION_COUNT];
  const bppsa_command *command = command_at(input->options);
  char name[BPPSA_COMMAND_NAME], *text = fuzz_text(&input->part[0]), *words[MOST_WORDS + 1] = {NULL};
  int count = 0;
  words[count++] = text;
  for (size_t i = 0; i < input->part[0].size && count < MOST_WORDS; ++i) {
    if (text[i] == '\0' || text[i] == '\n') {
      text[i] = '\0';
      words[count++] = text + i + 1;
    }
  }
  const bppsa_status status =
      bppsa_options_parse(bppsa_command_name(command, name, sizeof name), command->uses, count, words, values);
  for (const bppsa_option_use *use = command->uses; status == BPPSA_OK && use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_info *info = bppsa_option_of(use);
    const bppsa_option_value *value = &values[use->option];
    if (!value->present) {
      continue;
    }
    FUZZ_CHECK((info->kind != BPPSA_INTEGER && info->kind != BPPSA_SIZE) ||
               (value->integer >= info->least && value->integer <= info->most));
    FUZZ_CHECK(info->kind != BPPSA_REAL || (value->real >= info->low && value->real <= info->high));
    FUZZ_CHECK((info->kind != BPPSA_TEXT && info->kind != BPPSA_CHOICE) || value->text != NULL);
  }
  free(text);
  return status;
}

/* Every command with each of its options in turn. */
bool fuzz_seed(int index, fuzz_bytes *seed) {
  if (index > UINT8_MAX || (index > 0 && command_at((uint8_t)index) == command_at(0))) {
    return false;
  }
  fuzz_bytes line = {0};
  for (const bppsa_option_use *use = command_at((uint8_t)index)->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_info *info = bppsa_option_of(use);
    const char *value = info->choices != NULL ? info->choices[0] : info->fallback != NULL ? info->fallback : "1";
    if (use->option == BPPSA_OPTION_HELP) {
      continue;
    }
    fuzz_add(&line, info->name, strlen(info->name));
    fuzz_add(&line, info->kind == BPPSA_FLAG ? "" : "=", info->kind != BPPSA_FLAG);
    fuzz_add(&line, value, info->kind == BPPSA_FLAG ? 0 : strlen(value));
    fuzz_add(&line, "\n", 1);
  }
  fuzz_add_number(seed, (uint64_t)index, 1);
  fuzz_add_part(seed, line.data, line.size > 0 ? line.size - 1 : 0);
  free(line.data);
  return true;
}
