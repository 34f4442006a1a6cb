#include "cli/setup_flops.h"

#include <string.h>

#include "core/files/file.h"
#include "terminal/machine.h"

/* Are the layers counted alone? */
static bool is_none(const bppsa_cli *cli) {
  const bppsa_option_value *levels = bppsa_cli_value(cli, BPPSA_OPTION_UP_LEVELS);
  return levels->meaning == &bppsa_meaning_levels_auto_or_none && strcmp(levels->text, "none") == 0;
}

static bppsa_status parse_levels(const bppsa_cli *cli, bppsa_scan_method *scan) {
  const bppsa_option_value *levels = bppsa_cli_value(cli, BPPSA_OPTION_UP_LEVELS);
  const char *text = levels->text;
  bppsa_option_value number;
  if (strcmp(text, "auto") == 0 || is_none(cli)) {
    *scan = bppsa_scan_method_of(BPPSA_SCAN_AUTO);
    return BPPSA_OK;
  }
  if (bppsa_option_parse(BPPSA_OPTION_UP_LEVELS, text, &number) != BPPSA_OK) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--up-levels: '%s', expected %s", text, levels->meaning->expected);
  }
  *scan = (bppsa_scan_method){.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = number.integer};
  return BPPSA_OK;
}

static bppsa_status take_options(const bppsa_cli *cli, bppsa_flops_request *request) {
  const bppsa_option_value *pattern = bppsa_cli_value(cli, BPPSA_OPTION_PATTERN),
                           *dtype = bppsa_cli_value(cli, BPPSA_OPTION_DTYPE);
  if (bppsa_cli_value(cli, BPPSA_OPTION_MASK)->given && bppsa_cli_value(cli, BPPSA_OPTION_PRUNE)->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--mask: given beside --prune, expected one of them");
  }
  BPPSA_TRY(bppsa_setup_check_method(cli));
  bppsa_prune_structure structure;
  double prune = 0;
  BPPSA_TRY(bppsa_setup_structure(cli, BPPSA_OPTION_PRUNE, &structure, &prune));
  *request = (bppsa_flops_request){.network = cli->object,
                                   .most_patterns = BPPSA_FLOPS_MOST_PATTERNS,
                                   .count_work = BPPSA_CNN_COUNT_WORK,
                                   .mask = bppsa_cli_value(cli, BPPSA_OPTION_MASK)->text,
                                   .weights = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text,
                                   .prune = prune,
                                   .structure = structure,
                                   .method = (bppsa_prune_method)bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->choice,
                                   .seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer,
                                   .values = pattern->text != NULL && strcmp(pattern->text, "value") == 0,
                                   .input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT)->text,
                                   .labels = bppsa_cli_value(cli, BPPSA_OPTION_LABELS)->text,
                                   .batch = bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->integer,
                                   .input_grad = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_GRAD)->given,
                                   .memory_limit = bppsa_cli_value(cli, BPPSA_OPTION_MEMORY_LIMIT)->integer,
                                   .assumed_limit = (int64_t)(0.75 * (double)bppsa_machine_memory())};
  BPPSA_TRY(bppsa_dtype_parse(dtype->text, &request->dtype));
  request->convert_weights = dtype->given;
  request->layers_only = is_none(cli);
  BPPSA_TRY(bppsa_setup_in_shape(cli, request->in));
  return parse_levels(cli, &request->scan);
}

bppsa_status bppsa_setup_flops_picture(const bppsa_flops *flops, bppsa_text *drawing) {
  bppsa_flops_picture(flops, drawing);
  return bppsa_text_check(drawing);
}

static bppsa_status make_csv(const bppsa_flops *flops, bppsa_text *table) {
  bppsa_layer_table_csv(flops, table);
  return bppsa_text_check(table);
}

/* Writes the files of --csv and --svg, if they are given, when both are made. */
static bppsa_status write_files(const bppsa_cli *cli, const bppsa_flops *flops, const bppsa_flops_forms *forms) {
  const struct {
    bppsa_option option;
    bppsa_status (*make)(const bppsa_flops *flops, bppsa_text *text);
  } all[] = {{BPPSA_OPTION_CSV, make_csv}, {BPPSA_OPTION_SVG, forms->draw}};
  enum { FILES = sizeof all / sizeof *all };
  bppsa_text texts[FILES] = {{0}};
  bppsa_status status = BPPSA_OK;
  for (int i = 0; i < FILES && status == BPPSA_OK; ++i) {
    status = bppsa_cli_value(cli, all[i].option)->given ? all[i].make(flops, &texts[i]) : BPPSA_OK;
    status = status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "%s", bppsa_option_get(all[i].option)->name);
  }
  for (int i = 0; i < FILES && status == BPPSA_OK; ++i) {
    const bppsa_option_value *path = bppsa_cli_value(cli, all[i].option);
    status = path->given ? bppsa_file_write(path->text, texts[i].text, texts[i].size) : BPPSA_OK;
  }
  for (int i = 0; i < FILES; ++i) {
    bppsa_text_free(&texts[i]);
  }
  return status;
}

bppsa_status bppsa_setup_flops_run(const bppsa_cli *cli, const bppsa_flops_forms *forms) {
  bppsa_flops_request request;
  bppsa_flops flops = {0};
  bppsa_text shown = {0};
  BPPSA_TRY(take_options(cli, &request));
  bppsa_status status = bppsa_flops_count(&request, &flops);
  if (status == BPPSA_OK) {
    bppsa_setup_note_weights(cli, flops.note);
    if (request.scan.algorithm == BPPSA_SCAN_BLELLOCH) {
      bppsa_setup_note_larger(cli, BPPSA_OPTION_UP_LEVELS, request.scan.up_levels,
                              bppsa_scan_plan_config(flops.plan)->method.up_levels);
    }
    if (cli->to.json) {
      status = bppsa_json_render(forms->json(&flops), &shown.text);
    } else {
      forms->text(&flops, &shown);
      status = bppsa_text_check(&shown);
    }
  }
  status = status == BPPSA_OK ? write_files(cli, &flops, forms) : status;
  status = status == BPPSA_OK ? bppsa_setup_show(cli, &shown) : status;
  bppsa_text_free(&shown);
  bppsa_flops_free(&flops);
  return status;
}
