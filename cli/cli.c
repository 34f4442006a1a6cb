#include "cli/cli.h"

#include <string.h>

#include "bppsa_version.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/ranks.h"
#include "core/base/alloc.h"
#include "networks/network_kinds.h"
#include "networks/weights.h"

#define OBJECT_LIMIT 16 /* the most objects of one verb, and the most verbs */

/* Lists the words of the commands, each once: the verbs if `verb` is NULL, otherwise the objects of the verb. */
static void list_words(const char *verb, const char *words[OBJECT_LIMIT + 1]) {
  int count = 0;
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL && count < OBJECT_LIMIT; ++command) {
    const char *word = verb == NULL ? (*command)->verb : strcmp((*command)->verb, verb) == 0 ? (*command)->object : NULL;
    if (word != NULL && (count == 0 || strcmp(words[count - 1], word) != 0)) {
      words[count++] = word;
    }
  }
  words[count] = NULL;
}

static const char *listed_word(const void *words, int32_t index) {
  return ((const char *const *)words)[index];
}

static bool known_verb(const char *verb) {
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    if (strcmp((*command)->verb, verb) == 0) {
      return true;
    }
  }
  return false;
}

static bool is_help(const char *text) {
  return strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0;
}

/* Says whether a command with this object takes the word. */
static bool is_object(const char *object, const char *word) {
  const bppsa_network_kind *kind = bppsa_network_kind_find(word);
  return strcmp(object, kind != NULL ? kind->name : word) == 0;
}

/* Finds the command that argv[1] and argv[2] name. *used becomes how many words of argv that takes, with argv[0]. *command stays
 * NULL when help was printed instead. */
static bppsa_status find_command(int argc, char **argv, FILE *out, const bppsa_command **command, int *used) {
  const char *words[OBJECT_LIMIT + 1];
  char text[200], hint[96];
  const char *verb = argv[1];
  if (!known_verb(verb)) {
    list_words(NULL, words);
    return bppsa_fail(
        BPPSA_ERR_ARGUMENT, "'%s': unknown %s, expected %s%s", verb, verb[0] == '-' ? "option before a command" : "command",
        bppsa_text_choices(listed_word, words, text, sizeof text), bppsa_suggestion(verb, words, hint, sizeof hint));
  }
  list_words(verb, words);
  if (words[0] != NULL && argc > 2 && is_help(argv[2])) {
    bppsa_help_verb(out, verb);
    return BPPSA_OK;
  }
  if (words[0] != NULL && (argc < 3 || argv[2][0] == '-')) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s missing, expected %s", verb, bppsa_object_noun(verb),
                      bppsa_text_choices(listed_word, words, text, sizeof text));
  }
  for (const bppsa_command *const *each = bppsa_commands(); *each != NULL; ++each) {
    if (strcmp((*each)->verb, verb) == 0 && ((*each)->object == NULL || is_object((*each)->object, argv[2]))) {
      *command = *each;
      *used = (*each)->object == NULL ? 2 : 3;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: unknown %s '%s', expected %s%s", verb, bppsa_object_noun(verb), argv[2],
                    bppsa_text_choices(listed_word, words, text, sizeof text),
                    bppsa_suggestion(argv[2], words, hint, sizeof hint));
}

/* Is this a process of mpirun's, but not the first one, while the words ask for no ranks? It does nothing, so that only one process
 * prints or reports an error. */
static bool is_left_out(int argc, char **argv) {
  bool ranks = false, help = false;
  for (int i = 1; i < argc; ++i) {
    help = help || is_help(argv[i]);
  }
  for (const bppsa_command *const *each = bppsa_commands(); argc > 1 && *each != NULL; ++each) {
    const bool named = (*each)->object == NULL || (argc > 2 && is_object((*each)->object, argv[2]));
    ranks = ranks || (named && strcmp((*each)->verb, argv[1]) == 0 && bppsa_options_take((*each)->uses, BPPSA_OPTION_TRANSPORT));
  }
  return (help || !ranks) && !bppsa_comm_launched_first();
}

/* Parses the options of a command. An ONNX model has weights: it stands for --weights too, unless that is given. */
static bppsa_status parse_options(bppsa_cli *cli, const char *name, int argc, char **argv) {
  const bppsa_option_use *uses = cli->command->uses;
  const char *weights = bppsa_options_take(uses, BPPSA_OPTION_WEIGHTS) ? bppsa_weights_path(NULL, cli->object) : NULL;
  if (weights == NULL) {
    return bppsa_options_parse(name, uses, argc, argv, cli->values);
  }
  char option[] = "--weights", **words = bppsa_calloc((int64_t)argc + 2, sizeof *words);
  if (words == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  words[0] = option;
  words[1] = cli->argv[2];
  memcpy((void *)(words + 2), (const void *)argv, (size_t)argc * sizeof *words);
  const bppsa_status status = bppsa_options_parse(name, uses, argc + 2, words, cli->values);
  bppsa_free((void *)words);
  return status;
}

/* Parses the words after the first `used`, which name the command, and runs it. */
static bppsa_status run_command(const bppsa_command *command, int used, int argc, char **argv, const bppsa_output *to,
                                const int *told, bool *elsewhere) {
  char name[BPPSA_COMMAND_NAME];
  bppsa_interrupt interrupt = {.told = told};
  bppsa_cli cli = {.command = command,
                   .object = used > 2 ? argv[2] : NULL,
                   .argc = argc,
                   .argv = argv,
                   .to = *to,
                   .interrupt = &interrupt,
                   .elsewhere = elsewhere};
  bppsa_status status = parse_options(&cli, bppsa_command_name(command, name, sizeof name), argc - used, argv + used);
  if (status == BPPSA_OK && cli.values[BPPSA_OPTION_HELP].given) {
    bppsa_help_command(to->out, command);
    return BPPSA_OK;
  }
  cli.to.json = cli.values[BPPSA_OPTION_JSON].given;
  status = status == BPPSA_OK ? bppsa_cli_check_paths(&cli) : status;
  if (status != BPPSA_OK) {
    return bppsa_ranks_refuse(&cli, status);
  }
  return command->run(&cli);
}

static bppsa_status run(int argc, char **argv, const bppsa_output *to, const int *told, bool *elsewhere) {
  if (is_left_out(argc, argv)) {
    return BPPSA_OK;
  }
  if (argc < 2) {
    const char *words[OBJECT_LIMIT + 1];
    char text[200];
    list_words(NULL, words);
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "command missing, expected %s (see bppsa --help)",
                      bppsa_text_choices(listed_word, words, text, sizeof text));
  }
  if (is_help(argv[1])) {
    bppsa_help_program(to->out);
    return BPPSA_OK;
  }
  if (strcmp(argv[1], "--version") == 0) {
    fprintf(to->out, "bppsa %s%s%s\n", BPPSA_VERSION, BPPSA_COMMIT[0] != '\0' ? " " : "", BPPSA_COMMIT);
    return BPPSA_OK;
  }
  const bppsa_command *command = NULL;
  int used = 0;
  BPPSA_TRY(find_command(argc, argv, to->out, &command, &used));
  return command == NULL ? BPPSA_OK : run_command(command, used, argc, argv, to, told, elsewhere);
}

static int exit_code(bppsa_status status) {
  switch (status) {
  case BPPSA_OK:
    return 0;
  case BPPSA_ERR_ARGUMENT:
  case BPPSA_ERR_SHAPE:
  case BPPSA_ERR_FORMAT:
  case BPPSA_ERR_UNSUPPORTED:
    return 2;
  case BPPSA_ERR_MEMORY:
  case BPPSA_ERR_NUMERIC:
  case BPPSA_ERR_IO:
  case BPPSA_ERR_CUDA:
  case BPPSA_ERR_COMM:
  case BPPSA_ERR_LIBRARY:
    break;
  }
  return 1;
}

int bppsa_run(int argc, char **argv, FILE *out, FILE *err, const int *told) {
  if (argc < 0 || (argc > 0 && argv == NULL) || out == NULL || err == NULL) {
    (void)bppsa_fail(BPPSA_ERR_ARGUMENT, "bppsa_run: expected words and two streams, none of them NULL");
    return 2;
  }
  const bppsa_output to = {.out = out, .err = err};
  bool elsewhere = false;
  bppsa_status status = run(argc, argv, &to, told, &elsewhere);
  if (status == BPPSA_OK) {
    status = bppsa_output_flush(out);
  }
  const int code = exit_code(status);
  if (status != BPPSA_OK && !elsewhere) {
    fflush(out); /* so that results appear before the error */
    fprintf(err, "bppsa: error: %s\n", bppsa_last_error());
    fflush(err);
  }
  return code;
}

int bppsa_cli_main(int argc, char **argv, FILE *out, FILE *err) {
  return bppsa_run(argc, argv, out, err, NULL);
}
