#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/decimal.h"

static bool parse_integer(const char *text, int64_t *value) {
  const char *digits = text[0] == '-' ? text + 1 : text;
  if (digits[0] == '\0' || strspn(digits, "0123456789") != strlen(digits)) {
    return false;
  }
  errno = 0;
  const long long number = strtoll(text, NULL, 10);
  *value = number;
  return errno == 0;
}

/* Parses a number of bytes. The suffixes K, M and G multiply it by 1024, 1024^2 and 1024^3. */
static bool parse_size(const char *text, int64_t *value) {
  static const char suffixes[] = "KMG";
  char digits[24];
  const size_t length = strlen(text);
  const char *suffix = length > 1 ? strchr(suffixes, text[length - 1]) : NULL;
  const int power = suffix != NULL ? (int)(suffix - suffixes) + 1 : 0;
  if (length >= sizeof digits) {
    return false;
  }
  memcpy(digits, text, length + 1);
  digits[length - (power > 0)] = '\0';
  int64_t count;
  if (!parse_integer(digits, &count) || count < 0 || count > INT64_MAX >> (10 * power)) {
    return false;
  }
  *value = count << (10 * power);
  return true;
}

/* Takes digits only: bppsa_read_real also takes "inf", "nan" and leading blanks. */
static bool parse_real(const char *text, double *value) {
  if (text[0] == '\0' || strspn(text, "0123456789.eE+-") != strlen(text)) {
    return false;
  }
  char *end = NULL;
  errno = 0;
  *value = bppsa_read_real(text, &end);
  return errno == 0 && *end == '\0' && isfinite(*value);
}

static const char *choice(const void *info, int32_t index) {
  return bppsa_option_choice(info, index);
}

static bppsa_status parse_choice(const bppsa_option_info *info, const char *text, bppsa_option_value *value) {
  const char *choices[BPPSA_OPTION_CHOICES + 1] = {NULL};
  for (int32_t i = 0; i < BPPSA_OPTION_CHOICES && bppsa_option_choice(info, i) != NULL; ++i) {
    choices[i] = bppsa_option_choice(info, i);
    if (strcmp(choices[i], text) == 0) {
      value->choice = i;
      value->text = choices[i];
      return BPPSA_OK;
    }
  }
  char expected[160], hint[96];
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: '%s', expected %s%s", info->name, text,
                    bppsa_text_choices(choice, info, expected, sizeof expected),
                    bppsa_suggestion(text, choices, hint, sizeof hint));
}

static bppsa_status parse(const bppsa_option_info *info, const char *text, bppsa_option_value *value) {
  bppsa_option_value parsed = {.given = true, .present = true, .text = text, .meaning = info};
  bool good = true;
  switch (info->kind) {
  case BPPSA_INTEGER:
    good = parse_integer(text, &parsed.integer) && parsed.integer >= info->least && parsed.integer <= info->most;
    break;
  case BPPSA_SIZE:
    good = parse_size(text, &parsed.integer) && parsed.integer >= info->least && parsed.integer <= info->most;
    break;
  case BPPSA_REAL:
    good = parse_real(text, &parsed.real) && parsed.real >= info->low && parsed.real <= info->high;
    break;
  case BPPSA_TEXT:
    good = text[0] != '\0';
    break;
  case BPPSA_CHOICE:
    BPPSA_TRY(parse_choice(info, text, &parsed));
    break;
  case BPPSA_FLAG:
    break;
  }
  if (!good) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: '%s', expected %s", info->name, text, info->expected);
  }
  *value = parsed;
  return BPPSA_OK;
}

bppsa_status bppsa_option_parse(bppsa_option option, const char *text, bppsa_option_value *value) {
  return parse(bppsa_option_get(option), text, value);
}

bool bppsa_options_take(const bppsa_option_use *uses, bppsa_option option) {
  while (uses->option != BPPSA_OPTION_COUNT && uses->option != option) {
    ++uses;
  }
  return uses->option == option;
}

/* The option of a command that has this name (the first `length` characters of text), or NULL. */
static const bppsa_option_use *find_use(const bppsa_option_use *uses, const char *text, size_t length) {
  for (; uses->option != BPPSA_OPTION_COUNT; ++uses) {
    const char *name = bppsa_option_get(uses->option)->name;
    if (strlen(name) == length && strncmp(name, text, length) == 0) {
      return uses;
    }
  }
  return NULL;
}

/* The next option that may stand without its name, or NULL. */
static const bppsa_option_use *find_operand(const bppsa_option_use *uses, const bppsa_option_value *values) {
  for (; uses->option != BPPSA_OPTION_COUNT; ++uses) {
    if (uses->operand && !values[uses->option].given) {
      return uses;
    }
  }
  return NULL;
}

static bppsa_status unknown_option(const char *command, const bppsa_option_use *uses, const char *text, size_t length) {
  const char *names[BPPSA_OPTION_COUNT + 1] = {NULL};
  for (int i = 0; uses[i].option != BPPSA_OPTION_COUNT; ++i) {
    names[i] = bppsa_option_get(uses[i].option)->name;
  }
  char word[BPPSA_SUGGESTION_LIMIT + 8], hint[96];
  snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), text);
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: unknown option, expected one that bppsa %s --help lists%s", word, command,
                    bppsa_suggestion(word, names, hint, sizeof hint));
}

/* Refuses a word that was given to a flag: --flag=WORD, or --flag WORD where no word is expected. */
static bppsa_status refuse_value(const bppsa_option_use *flag, const char *word) {
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: '%s', expected the flag without a value%s%s", bppsa_option_get(flag->option)->name,
                    word, flag->instead != NULL ? "; " : "", flag->instead != NULL ? flag->instead : "");
}

/* Returns the flag in front of the word at `position`, or NULL. */
static const bppsa_option_use *flag_before(const bppsa_option_use *uses, char **argv, int position) {
  const bppsa_option_use *use = position > 0 ? find_use(uses, argv[position - 1], strlen(argv[position - 1])) : NULL;
  return use != NULL && bppsa_option_of(use)->kind == BPPSA_FLAG ? use : NULL;
}

static bppsa_status parse_argument(const char *command, const bppsa_option_use *uses, int argc, char **argv, int *position,
                                   bppsa_option_value *values) {
  const char *text = argv[*position];
  if (text[0] != '-' || text[1] == '\0') {
    const bppsa_option_use *operand = find_operand(uses, values);
    if (operand != NULL) {
      return parse(bppsa_option_of(operand), text, &values[operand->option]);
    }
    const bppsa_option_use *flag = flag_before(uses, argv, *position);
    return flag != NULL ? refuse_value(flag, text)
                        : bppsa_fail(BPPSA_ERR_ARGUMENT, "'%s': unexpected argument of '%s', expected options such as --help",
                                     text, command);
  }
  const char *equals = strchr(text, '=');
  const size_t length = equals != NULL ? (size_t)(equals - text) : strlen(text);
  const bppsa_option_use *use = strcmp(text, "-h") == 0 ? find_use(uses, "--help", 6) : find_use(uses, text, length);
  if (use == NULL) {
    return unknown_option(command, uses, text, length);
  }
  const bppsa_option_info *info = bppsa_option_of(use);
  if (info->kind == BPPSA_FLAG) {
    if (equals != NULL) {
      return refuse_value(use, equals + 1);
    }
    values[use->option] = (bppsa_option_value){.given = true, .present = true, .meaning = info};
    return BPPSA_OK;
  }
  const char *value = equals != NULL ? equals + 1 : NULL;
  if (value == NULL) {
    if (*position + 1 >= argc || strncmp(argv[*position + 1], "--", 2) == 0) {
      char expected[160];
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: value missing, expected %s", info->name,
                        info->kind == BPPSA_CHOICE ? bppsa_text_choices(choice, info, expected, sizeof expected)
                                                   : info->expected);
    }
    value = argv[++*position];
  }
  return parse(info, value, &values[use->option]);
}

bppsa_status bppsa_options_parse(const char *command, const bppsa_option_use *uses, int argc, char **argv,
                                 bppsa_option_value *values) {
  for (int i = 0; i < BPPSA_OPTION_COUNT; ++i) {
    values[i] = (bppsa_option_value){.given = false};
  }
  for (const bppsa_option_use *use = uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const char *fallback = bppsa_option_fallback(use);
    if (fallback != NULL) {
      BPPSA_TRY(parse(bppsa_option_of(use), fallback, &values[use->option]));
      values[use->option].given = false;
    }
  }
  for (int i = 0; i < argc; ++i) {
    BPPSA_TRY(parse_argument(command, uses, argc, argv, &i, values));
    if (values[BPPSA_OPTION_HELP].given) {
      return BPPSA_OK;
    }
  }
  for (const bppsa_option_use *use = uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    if (use->required && !values[use->option].given) {
      const bppsa_option_info *info = bppsa_option_of(use);
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s missing in '%s', expected %s", use->operand ? info->metavar : info->name,
                        use->operand ? "argument" : "option", command, info->expected);
    }
  }
  return BPPSA_OK;
}
