/* Writes the files of a figure: its CSV data, its script, and the drawings that gnuplot makes with this script. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"
#include "figures/figure.h"

/* ---- files ---- */

bppsa_status bppsa_figures_path(const bppsa_figures *figures, const char *name, const char *suffix,
                                char path[BPPSA_FIGURES_PATH]) {
  const int length = snprintf(path, BPPSA_FIGURES_PATH, "%s/%s%s", figures->request->directory, name, suffix);
  return length > 0 && length < BPPSA_FIGURES_PATH
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: a path of %d characters, expected at most %d", length,
                          BPPSA_FIGURES_PATH - 1);
}

bppsa_status bppsa_figures_list(bppsa_figures *figures, const char *name, const char *suffix) {
  char whole[128];
  snprintf(whole, sizeof whole, "%s%s", name, suffix);
  return json_array_append_new(figures->files, json_string(whole)) == 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the list of files");
}

static bppsa_status write_bytes(bppsa_figures *figures, const char *name, const char *suffix, const char *bytes, size_t size) {
  char path[BPPSA_FIGURES_PATH];
  BPPSA_TRY(bppsa_figures_path(figures, name, suffix, path));
  BPPSA_TRY(bppsa_file_write(path, bytes, size));
  return bppsa_figures_list(figures, name, suffix);
}

bppsa_status bppsa_figures_write(bppsa_figures *figures, const char *name, const char *suffix, const bppsa_text *text) {
  BPPSA_TRY(bppsa_text_check(text));
  return write_bytes(figures, name, suffix, text->text, text->size);
}

/* ---- gnuplot ---- */

enum { NOT_FOUND = 127, MOST_SECONDS = 60 /* of one drawing */ };

/* The child process: runs gnuplot in the figures' directory without output, because its messages would only repeat the exit
 * code. */
static _Noreturn void run_child(const char *directory, const char *script, const char *format) {
  const int null = open("/dev/null", O_RDWR);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 ||
      chdir(directory) != 0) {
    _exit(1);
  }
  (void)alarm(MOST_SECONDS);
  execlp("gnuplot", "gnuplot", "-c", script, format, (char *)NULL);
  _exit(errno == ENOENT ? NOT_FOUND : 1);
}

/* Runs NAME.gp for one format, "svg" or "png", which writes NAME.svg or NAME.png. Does nothing if gnuplot is not installed.
 * ERR_IO: gnuplot failed. */
static bppsa_status plot(bppsa_figures *figures, const char *name, const char *format) {
  const char *directory = figures->request->directory;
  char script[64], suffix[8];
  snprintf(script, sizeof script, "%s.gp", name);
  snprintf(suffix, sizeof suffix, ".%s", format);
  if (!figures->gnuplot) {
    return BPPSA_OK;
  }
  const pid_t child = fork();
  if (child == 0) {
    run_child(directory, script, format);
  }
  int status = 0;
  pid_t waited = child;
  while (child > 0 && (waited = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  if (waited < 0) {
    return bppsa_fail(BPPSA_ERR_IO, "gnuplot: cannot be started (%s), expected it to draw %s", strerror(errno), script);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND) {
    figures->gnuplot = false;
    return BPPSA_OK;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return bppsa_fail(BPPSA_ERR_IO, "gnuplot: failed on %s/%s, expected it to draw %s%s", directory, script, name, suffix);
  }
  return bppsa_figures_list(figures, name, suffix);
}

/* Scripts give names of the data to awk: characters that a shell or awk could take for more than text are refused. The run has
 * refused them in what it read, so none is expected. */
static bppsa_status check_data(const char *name, const bppsa_text *csv) {
  const size_t found = strcspn(csv->text, "'\"`$\\;&|<>\t\r\033");
  return found == csv->size
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "figures: %s.csv: the character '%c' in a name, expected letters and digits", name,
                          csv->text[found]);
}

/* ---- a figure ---- */

bppsa_status bppsa_figure_write(bppsa_figures *figures, const bppsa_figure *figure, const bppsa_figure_content *content) {
  const char *name = figure->name;
  const bool data = content->csv.size > 0, plotted = data && figure->script != NULL;
  BPPSA_TRY(plotted ? check_data(name, &content->csv) : BPPSA_OK);
  if (data) {
    BPPSA_TRY(bppsa_figures_write(figures, name, ".csv", &content->csv));
  }
  if (content->svg.size > 0) {
    BPPSA_TRY(bppsa_figures_write(figures, name, ".svg", &content->svg));
  }
  if (content->script.size > 0) {
    BPPSA_TRY(bppsa_figures_write(figures, name, ".gp", &content->script));
    BPPSA_TRY(plot(figures, name, "png"));
  }
  if (plotted) {
    BPPSA_TRY(write_bytes(figures, name, ".gp", figure->script, strlen(figure->script)));
    BPPSA_TRY(plot(figures, name, "svg"));
    BPPSA_TRY(plot(figures, name, "png"));
  }
  return figure->write != NULL ? figure->write(figures, figure) : BPPSA_OK;
}
