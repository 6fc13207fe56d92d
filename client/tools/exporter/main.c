/* client/tools/exporter/main.c - the program sluice-metrics: serves GET /metrics of one node for
 * Prometheus.
 *
 * It reads only shared memory and /proc, so that a client at its port cannot delay an actor. It
 * listens at the address of the setting metrics_listen or of --listen, or at a socket in the
 * runtime directory, which only this user can open.
 *
 * The one that the supervisor starts, without --listen, publishes its address in the runtime
 * directory (client/tools/metrics/at.h). */
#include "client/tools/exporter/http.h"
#include "client/tools/exporter/listen.h"
#include "client/tools/metrics/at.h"
#include "client/tools/metrics/scrape.h"
#include "runtime/base/sl_address.h"
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_loop.h"
#include "runtime/base/sl_trust.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define METRICS_TOKEN   "SLUICE_METRICS_TOKEN" /* the variable; also _FILE */
#define TOKEN_BYTES_MIN 16u

enum { EXIT_FINE, EXIT_FAILED, EXIT_WRONG_USE };

struct exporter {
    struct sl_config *config;
    struct sl_paths paths;
    const char *listen; /* HOST:PORT or local */
    bool own;           /* the node's own: without --listen */
    char *token;        /* NULL: anyone who reaches the address may read */
    char socket_path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    struct stat socket_file; /* st_ino 0: we have not made one */
    struct sl_loop *loop;
    struct http *http;
};

/* ---- pages ---- */

static void root_get(void *context, struct http_answer *answer)
{
    (void)context;
    answer->text = strdup("/metrics\n");
    answer->length_bytes = answer->text != NULL ? strlen(answer->text) : 0;
}

static void metrics_get(void *context, struct http_answer *answer)
{
    const struct exporter *self = context;
    struct sl_error why = {0};
    FILE *out = open_memstream(&answer->text, &answer->length_bytes);
    if (out == NULL) {
        return;
    }
    sl_err err = scrape_text(self->paths.shm_dir, out, &why);
    answer->type = SCRAPE_TYPE;
    if (err != SL_OK) { /* replaces the incomplete text */
        rewind(out);
        (void)fprintf(out, "%s\n", why.text);
        answer->status = err == SL_ERR_UNREACHABLE ? 503 : 500;
        answer->type = NULL;
    }
    if (fclose(out) != 0) {
        free(answer->text);
        *answer = (struct http_answer){0};
    }
}

static const struct http_page pages[] = {{"/", root_get, false}, {"/metrics", metrics_get, true}};

/* ---- the local socket ---- */

static sl_err socket_listen(struct exporter *self, int *out, struct sl_error *why)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int length =
        snprintf(at.sun_path, sizeof at.sun_path, "%s/metrics.http", self->paths.runtime_dir);
    if (length < 0 || (size_t)length >= sizeof at.sun_path) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.150s' is too long for a socket",
                       self->paths.runtime_dir);
    }
    SL_AUTO(close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return sl_fail_os(why, errno, "socket");
    }
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0 || errno == EAGAIN) {
        return sl_fail(why, SL_ERR_EXISTS, "another process listens at %s", at.sun_path);
    }
    struct stat there;
    bool left = errno == ECONNREFUSED && lstat(at.sun_path, &there) == 0 &&
                S_ISSOCK(there.st_mode); /* left by a killed process */
    if (left && unlink(at.sun_path) != 0) {
        return sl_fail_os(why, errno, "remove %s", at.sun_path);
    }
    mode_t mask = umask(0177);
    int failed = bind(fd, (struct sockaddr *)&at, sizeof at);
    int code = errno;
    (void)umask(mask);
    if (failed != 0) {
        return sl_fail_os(why, code, "listen at %s", at.sun_path);
    }
    if (listen(fd, MC_LISTEN_BACKLOG) != 0 || stat(at.sun_path, &self->socket_file) != 0) {
        return sl_fail_os(why, errno, "listen at %s", at.sun_path);
    }
    memcpy(self->socket_path, at.sun_path, sizeof at.sun_path);
    *out = fd;
    fd = -1; /* NOLINT(clang-analyzer-deadcode.DeadStores): read by its clean-up */
    return SL_OK;
}

/* Removes the socket's file if it is still ours. */
static void socket_remove(const struct exporter *self)
{
    struct stat now;
    if (self->socket_file.st_ino != 0 && stat(self->socket_path, &now) == 0 &&
        now.st_ino == self->socket_file.st_ino && now.st_dev == self->socket_file.st_dev) {
        (void)unlink(self->socket_path);
    }
}

static sl_err address_listen(struct exporter *self, int *out, struct sl_error *why)
{
    char host[256];
    uint16_t port;
    if (strcmp(self->listen, "local") == 0) {
        return socket_listen(self, out, why);
    }
    if (strcmp(self->listen, "off") == 0) {
        return sl_fail(why, SL_ERR_CONFIG, "metrics_listen is off: name an address with --listen");
    }
    return sl_address_parse(self->listen, host, sizeof host, &port)
               ? tcp_listen(host, port, out, why)
               : sl_fail(why, SL_ERR_CONFIG, "--listen '%.200s' is not HOST:PORT", self->listen);
}

static const char *address_text(const struct exporter *self)
{
    return self->socket_path[0] != '\0' ? self->socket_path : self->listen;
}

/* ---- running ---- */

static void on_signal(void *context, int number)
{
    struct exporter *self = context;
    (void)number;
    sl_loop_stop(self->loop);
}

static sl_err serve(struct exporter *self, struct sl_error *why)
{
    const int signals[] = {SIGTERM, SIGINT};
    const struct sl_loop_options options = {.fds_max = HTTP_CONNECTIONS_MAX + 8, .timers_max = 1};
    int fd = -1;
    sl_err err = sl_loop_create(&options, &self->loop, why);
    if (err == SL_OK) {
        err = sl_loop_signals(self->loop, signals, SL_COUNT(signals), on_signal, self, why);
    }
    if (err == SL_OK) {
        err = address_listen(self, &fd, why);
    }
    if (err == SL_OK) {
        err =
            http_open(self->loop, fd, pages, SL_COUNT(pages), self->token, self, &self->http, why);
    }
    if (err == SL_OK && self->own) {
        err = helper_address_write(self->paths.runtime_dir, "metrics", address_text(self), why);
    }
    if (err == SL_OK) {
        (void)printf("sluice-metrics: /metrics of node '%s' at %s\n",
                     sl_config_text(self->config, SL_SET_instance), address_text(self));
        (void)fflush(stdout);
        err = sl_loop_run(self->loop, why);
    }
    http_close(&self->http);
    helper_address_remove(self->paths.runtime_dir, "metrics");
    socket_remove(self);
    sl_loop_destroy(&self->loop);
    return err;
}

/* ---- the command line ---- */

static void usage(FILE *out)
{
    (void)fputs(
        "usage: sluice-metrics [--listen HOST:PORT] [SETTINGS]\n\n"
        "Serves GET /metrics of a node of this user in Prometheus' text format, until SIGTERM. It "
        "answers 503 while\nthe node does not run.\n\n"
        "  --listen HOST:PORT  address, or local: metrics.http in the runtime directory, only for "
        "this user.\n"
        "                      Default: the setting metrics_listen. Anyone who reaches an address "
        "can read, unless\n"
        "                      " METRICS_TOKEN " or " METRICS_TOKEN "_FILE has a token, which\n"
        "                      requests then need (Authorization: Bearer TOKEN)\n"
        "  --instance NAME, --runtime-dir DIR, --shm-dir DIR, --config FILE: as sluicectl\n\n"
        "Exit codes: 0 success, 1 failed, 2 wrong use.\n",
        out);
}

/* Removes --listen from the arguments. False: it has no value. */
static bool listen_take(struct exporter *self, int *argc, char **argv)
{
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        if (strncmp(argv[i], "--listen=", 9) == 0) {
            self->listen = argv[i] + 9;
        } else if (strcmp(argv[i], "--listen") == 0) {
            if (i + 1 == *argc) {
                return false;
            }
            self->listen = argv[++i];
        } else {
            argv[kept++] = argv[i];
        }
    }
    *argc = kept;
    return true;
}

/* Reads the token from SLUICE_METRICS_TOKEN, or from the first line of the file that
 * SLUICE_METRICS_TOKEN_FILE names. *out NULL: there is none. */
static sl_err token_get(char **out, struct sl_error *why)
{
    char line[1024] = "";
    const char *token = getenv(METRICS_TOKEN), *path = getenv(METRICS_TOKEN "_FILE");
    *out = NULL;
    if (token == NULL || token[0] == '\0') {
        struct sl_error inner = {0};
        if (path == NULL || path[0] == '\0') {
            return SL_OK;
        }
        if (sl_trust_read(path, SL_TRUST_SECRET, false, line, sizeof line, &inner) != SL_OK) {
            return sl_fail(why, SL_ERR_CONFIG, METRICS_TOKEN "_FILE: %s", inner.text);
        }
        line[strcspn(line, "\r\n")] = '\0';
        token = line;
    }
    if (strlen(token) < TOKEN_BYTES_MIN) {
        return sl_fail(why, SL_ERR_CONFIG, "%s: a token needs at least %u characters",
                       token == line ? path : METRICS_TOKEN, TOKEN_BYTES_MIN);
    }
    *out = strdup(token);
    explicit_bzero(line, sizeof line);
    return *out != NULL ? SL_OK : sl_fail(why, SL_ERR_NO_MEMORY, METRICS_TOKEN);
}

int main(int argc, char **argv)
{
    struct exporter self = {.listen = NULL};
    struct sl_error why = {0};
    if (!listen_take(&self, &argc, argv)) {
        usage(stderr);
        return EXIT_WRONG_USE;
    }
    sl_err err = sl_config_create(&self.config, &why);
    if (err == SL_OK) {
        err = sl_config_load(self.config, NULL, argc, argv, NULL, &why);
    }
    err = err == SL_OK ? sl_config_check_access(self.config, &why) : err;
    if (err == SL_ERR_CANCELLED) {
        bool help = strstr(why.text, "help") != NULL;
        help ? usage(stdout) : (void)printf("sluice-metrics %s\n", SL_VERSION);
        sl_config_destroy(&self.config);
        return EXIT_FINE;
    }
    if (err == SL_OK) {
        err = sl_paths_from(self.config, &self.paths, &why);
    }
    if (err == SL_OK) {
        self.own = self.listen == NULL;
        self.listen = self.own ? sl_config_text(self.config, SL_SET_metrics_listen) : self.listen;
        err = token_get(&self.token, &why);
    }
    if (err == SL_OK) {
        err = serve(&self, &why);
    }
    free(self.token);
    if (err != SL_OK) {
        (void)fprintf(stderr, "sluice-metrics: %s\n", why.text);
    }
    sl_config_destroy(&self.config);
    return err == SL_OK ? EXIT_FINE : err == SL_ERR_CONFIG ? EXIT_WRONG_USE : EXIT_FAILED;
}
