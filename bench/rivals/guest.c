#include "bench/rivals/guest.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/files/json.h"

enum { LINE = 1 << 16, REASON = 240 };

struct bppsa_guest {
  pid_t process;
  int socket; /* -1: the program is gone */
  bppsa_guest_waits waits;
  double wait_s, deadline; /* of the answer that is awaited */
  json_t *first;           /* its first line */
  char reason[REASON];     /* why it is gone */
  size_t from, to;         /* bytes received and not yet taken */
  char received[LINE];
};

extern char **environ;

/* ---- the process ---- */

static bool has_ended(pid_t process, int *status) {
  pid_t waited;
  while ((waited = waitpid(process, status, WNOHANG)) < 0 && errno == EINTR) {
  }
  return waited != 0;
}

/* Waits for the end of the process, at most that long, then kills it. Returns how it ended, as waitpid does. */
static int end_process(pid_t process, double seconds) {
  const double until = bppsa_now() + seconds;
  int status = 0;
  while (!has_ended(process, &status)) {
    if (bppsa_now() >= until) {
      (void)kill(process, SIGKILL);
    }
    (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
  return status;
}

/* Gives the program up: ends it, and keeps the reason, which becomes the error. */
__attribute__((format(printf, 2, 3))) static bppsa_status lose(bppsa_guest *guest, const char *format, ...) {
  char words[REASON - 64];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  (void)close(guest->socket);
  guest->socket = -1;
  const int status = end_process(guest->process, 0.2);
  char end[32] = "";
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    snprintf(end, sizeof end, ", exit code %d", WEXITSTATUS(status));
  } else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
    snprintf(end, sizeof end, ", signal %d", WTERMSIG(status));
  }
  snprintf(guest->reason, sizeof guest->reason, "the rivals' program %s%s", words, end);
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s", guest->reason);
}

static bppsa_status start_process(const char *program, int threads, const char *device, int socket, pid_t *process) {
  char count[16];
  snprintf(count, sizeof count, "%d", threads);
  char *const arguments[] = {(char *)(uintptr_t)program, "--threads", count, "--device", (char *)(uintptr_t)device, NULL};
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error != 0) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "--rivals: %s: %s", program, strerror(error));
  }
  error = posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  error = error == 0 ? posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO) : error;
  error = error == 0 ? posix_spawn(process, program, &actions, NULL, arguments, environ) : error;
  (void)posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? BPPSA_OK
                    : bppsa_fail(BPPSA_ERR_ARGUMENT, "--rivals: %s: %s, expected a program that can be started", program,
                                 strerror(error));
}

/* ---- bytes ---- */

/* Waits until the socket is ready. */
static bppsa_status await(bppsa_guest *guest, short events) {
  struct pollfd at = {.fd = guest->socket, .events = events};
  for (;;) {
    const double left = guest->deadline - bppsa_now();
    const int ready = left > 0 ? poll(&at, 1, left < 1 ? 1 + (int)(1e3 * left) : 1000) : 0;
    if (ready > 0) {
      return BPPSA_OK;
    }
    if (left <= 0) {
      return lose(guest, "gave no answer within %.0f s%s", guest->wait_s,
                  guest->wait_s < guest->waits.patience_s ? ": --time-limit was over" : "");
    }
    if (ready < 0 && errno != EINTR) {
      return lose(guest, "cannot be waited for: %s", strerror(errno));
    }
  }
}

/* Begins to wait for an answer. */
static void begin_wait(bppsa_guest *guest, double time_s) {
  const double most = time_s + 2 * guest->waits.grace_s + 1;
  guest->wait_s = most < guest->waits.patience_s ? most : guest->waits.patience_s;
  guest->deadline = bppsa_now() + guest->wait_s;
}

static bppsa_status send_bytes(bppsa_guest *guest, const void *data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    BPPSA_TRY(await(guest, POLLOUT));
    const ssize_t now = send(guest->socket, (const char *)data + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now < 0 && errno != EAGAIN && errno != EINTR) {
      return lose(guest, "takes no request (%s)", strerror(errno));
    }
    done += now > 0 ? (size_t)now : 0;
  }
  return BPPSA_OK;
}

/* Takes what has arrived, at least one byte. */
static bppsa_status receive_some(bppsa_guest *guest, void *data, size_t room, size_t *count) {
  for (;;) {
    BPPSA_TRY(await(guest, POLLIN));
    const ssize_t now = recv(guest->socket, data, room, MSG_DONTWAIT);
    if (now > 0) {
      *count = (size_t)now;
      return BPPSA_OK;
    }
    if (now == 0 || (errno != EAGAIN && errno != EINTR)) {
      return lose(guest, "ended before its answer");
    }
  }
}

static bppsa_status receive_bytes(bppsa_guest *guest, void *data, size_t bytes) {
  size_t done = guest->to - guest->from < bytes ? guest->to - guest->from : bytes, now = 0;
  if (done > 0) {
    memcpy(data, guest->received + guest->from, done);
    guest->from += done;
  }
  for (; done < bytes; done += now) {
    BPPSA_TRY(receive_some(guest, (char *)data + done, bytes - done, &now));
  }
  return BPPSA_OK;
}

/* Takes one line, an object. */
static bppsa_status receive_line(bppsa_guest *guest, json_t **object) {
  size_t now = 0;
  const char *end;
  memmove(guest->received, guest->received + guest->from, guest->to - guest->from);
  guest->to -= guest->from;
  guest->from = 0;
  while ((end = memchr(guest->received, '\n', guest->to)) == NULL) {
    if (guest->to == sizeof guest->received) {
      return lose(guest, "sent a line of more than %zu bytes", sizeof guest->received);
    }
    BPPSA_TRY(receive_some(guest, guest->received + guest->to, sizeof guest->received - guest->to, &now));
    guest->to += now;
  }
  guest->from = (size_t)(end - guest->received) + 1;
  json_t *found = NULL;
  const bppsa_status status = bppsa_json_parse("answer", guest->received, end - guest->received, &found);
  if (status == BPPSA_ERR_MEMORY) {
    return status;
  }
  if (!json_is_object(found)) {
    json_decref(found);
    return lose(guest, "sent '%.*s', expected a JSON object", (int)(end - guest->received < 40 ? end - guest->received : 40),
                guest->received);
  }
  *object = found;
  return BPPSA_OK;
}

/* ---- the talk ---- */

static bool is_first_line(const json_t *first) {
  const json_t *methods = json_object_get(first, "methods");
  bool fine = json_integer_value(json_object_get(first, "guest")) == 1 && json_is_object(json_object_get(first, "versions"));
  fine = fine && json_is_array(methods) && json_array_size(methods) <= BPPSA_GUEST_METHODS;
  for (size_t i = 0; fine && i < json_array_size(methods); ++i) {
    const char *name = json_string_value(json_array_get(methods, i));
    fine = name != NULL && strlen(name) < BPPSA_GUEST_NAME;
  }
  return fine;
}

static bppsa_status take_first_line(bppsa_guest *guest, const char *program) {
  static const char expected[] =
      "expected a program whose first line is {\"guest\": 1, \"methods\": [names], \"versions\": {..}}, as of "
      "bench/rivals/recurrent.py";
  begin_wait(guest, INFINITY);
  const bppsa_status status = receive_line(guest, &guest->first);
  if (status == BPPSA_ERR_UNSUPPORTED) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--rivals: %s: %s; %s", program, guest->reason, expected);
  }
  BPPSA_TRY(status);
  return is_first_line(guest->first) ? BPPSA_OK
                                     : bppsa_fail(BPPSA_ERR_ARGUMENT, "--rivals: %s: its first line is '%.*s', %s", program,
                                                  guest->from < 60 ? (int)guest->from - 1 : 60, guest->received, expected);
}

bppsa_status bppsa_guest_start(const char *program, int threads, const char *device, const bppsa_guest_waits *waits,
                               bppsa_guest **guest) {
  int ends[2];
  bppsa_guest *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->waits = *waits;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    bppsa_free(made);
    return bppsa_fail(BPPSA_ERR_IO, "--rivals: %s: no socket for it: %s", program, strerror(errno));
  }
  made->socket = ends[0];
  bppsa_status status = start_process(program, threads, device, ends[1], &made->process);
  (void)close(ends[1]);
  if (status == BPPSA_OK) {
    status = take_first_line(made, program);
  }
  if (status != BPPSA_OK) {
    bppsa_guest_stop(made);
    return status;
  }
  *guest = made;
  return BPPSA_OK;
}

void bppsa_guest_stop(bppsa_guest *guest) {
  if (guest == NULL) {
    return;
  }
  if (guest->socket >= 0) {
    (void)close(guest->socket);
    if (guest->process > 0) {
      (void)end_process(guest->process, 2);
    }
  }
  json_decref(guest->first);
  bppsa_free(guest);
}

int bppsa_guest_method_count(const bppsa_guest *guest) {
  return (int)json_array_size(json_object_get(guest->first, "methods"));
}

const char *bppsa_guest_method(const bppsa_guest *guest, int method) {
  return json_string_value(json_array_get(json_object_get(guest->first, "methods"), (size_t)method));
}

bool bppsa_guest_put_versions(const bppsa_guest *guest, json_t *device) {
  return json_object_update_missing(device, json_object_get(guest->first, "versions")) == 0;
}

static bppsa_status send_request(bppsa_guest *guest, json_t *request, int64_t count, const bppsa_view *sent) {
  int64_t bytes = 0;
  char *text = NULL;
  for (int64_t i = 0; i < count; ++i) {
    bytes += (int64_t)bppsa_view_bytes(&sent[i]);
  }
  if (!bppsa_json_put_integer(request, "bytes", bytes)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "no memory for a request to the rivals' program");
  }
  BPPSA_TRY(bppsa_json_text(request, 0, 0, &text));
  bppsa_status status = send_bytes(guest, text, strlen(text));
  bppsa_free(text);
  status = status == BPPSA_OK ? send_bytes(guest, "\n", 1) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    status = send_bytes(guest, sent[i].data, bppsa_view_bytes(&sent[i]));
  }
  return status;
}

double bppsa_guest_time(const bppsa_guest *guest) {
  const double left = guest->waits.over - bppsa_now();
  return guest->waits.over == 0 ? INFINITY : left > 0 ? left + guest->waits.grace_s : 0;
}

bppsa_status bppsa_guest_ask(bppsa_guest *guest, double time_s, json_t *request, int64_t count, const bppsa_view *sent,
                             int64_t bytes, void *received, json_t **answer) {
  if (guest->socket < 0) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s", guest->reason);
  }
  begin_wait(guest, time_s);
  BPPSA_TRY(send_request(guest, request, count, sent));
  json_t *found = NULL;
  BPPSA_TRY(receive_line(guest, &found));
  const char *refused = json_string_value(json_object_get(found, "refused"));
  const int64_t follow = (int64_t)json_integer_value(json_object_get(found, "bytes"));
  bppsa_status status = BPPSA_OK;
  if (refused != NULL) {
    status = bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s", refused);
  } else if (follow != bytes) {
    status = lose(guest, "answers with %lld bytes, expected %lld", (long long)follow, (long long)bytes);
  } else {
    status = receive_bytes(guest, received, (size_t)bytes);
  }
  if (status != BPPSA_OK) {
    json_decref(found);
    return status;
  }
  *answer = found;
  return BPPSA_OK;
}
