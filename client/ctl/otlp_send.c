/* client/ctl/otlp_send.c - an OTLP request on its way: to a collector by `curl`, or into a file.
 *
 * curl knows proxies, certificates and versions of TLS; it is a program of every host that has
 * collectors, and nothing that this library links for all who never send a span. Headers may be
 * secrets, so they travel through curl's standard input and not its command line. */
#include "client/ctl/trace.h"
#include "runtime/sl_address.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CURL_SECONDS "10"
#define URL_BYTES    2048u

extern char **environ;

static bool is_url(const char *where)
{
    return strncmp(where, "http://", 7) == 0 || strncmp(where, "https://", 8) == 0;
}

static sl_err file_append(const char *path, const json_t *request, struct sl_error *why)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "ae");
    if (file == NULL) {
        return sl_fail_os(why, errno, "%s", path);
    }
    bool fine = json_dumpf(request, file, JSON_COMPACT) == 0 && fputc('\n', file) != EOF;
    fine = (file == stdout ? fflush(file) : fclose(file)) == 0 && fine;
    return fine ? SL_OK : sl_fail_os(why, errno, "%s", path);
}

/* A line of curl's settings: name = "value". */
static void setting_write(FILE *to, const char *name, const char *value)
{
    (void)fprintf(to, "%s = \"", name);
    for (const char *at = value; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            (void)fputc('\\', to);
        }
        if ((unsigned char)*at >= ' ') {
            (void)fputc(*at, to);
        }
    }
    (void)fputs("\"\n", to);
}

/* "name=value,name=value", as the variable of OpenTelemetry has them. */
static void headers_write(FILE *to, const char *list)
{
    char *copy = strdup(list), *rest = copy;
    for (char *one; copy != NULL && (one = strsep(&rest, ",")) != NULL;) {
        char *equals = strchr(one, '=');
        if (equals != NULL && equals != one) {
            char header[4096];
            *equals = '\0';
            (void)snprintf(header, sizeof header, "%s: %s", one, equals + 1);
            setting_write(to, "header", header);
        }
    }
    free(copy);
}

/* A memory file that a child inherits, read from its start. */
static int file_of_settings(const char *url, struct sl_error *why)
{
    int fd = memfd_create("sluice-otlp", 0);
    int copy = fd < 0 ? -1 : dup(fd);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "w");
    if (file == NULL) {
        (void)sl_fail_os(why, errno, "memfd");
        return -1;
    }
    const char *headers = getenv("OTEL_EXPORTER_OTLP_HEADERS");
    size_t length = strlen(url);
    const char *authority = strstr(url, "://") + 3;
    const char *path = strchr(authority, '/');
    char whole[URL_BYTES + 16];
    bool bare = path == NULL || path[1] == '\0'; /* a base, as OTEL_EXPORTER_OTLP_ENDPOINT */
    (void)snprintf(whole, sizeof whole, "%s%s%s", url, bare && url[length - 1] != '/' ? "/" : "",
                   bare ? "v1/traces" : "");
    setting_write(file, "url", whole);
    setting_write(file, "header", "Content-Type: application/json");
    headers_write(file, headers != NULL ? headers : "");
    bool fine = fclose(file) == 0 && lseek(fd, 0, SEEK_SET) == 0;
    if (!fine) {
        (void)sl_fail_os(why, errno, "memfd");
        (void)close(fd);
        return -1;
    }
    return fd;
}

static int file_of_body(const json_t *request, struct sl_error *why)
{
    int fd = memfd_create("sluice-otlp", 0);
    bool fine =
        fd >= 0 && json_dumpfd(request, fd, JSON_COMPACT) == 0 && lseek(fd, 0, SEEK_SET) == 0;
    if (!fine) {
        (void)sl_fail_os(why, errno, "memfd");
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return fine ? fd : -1;
}

static sl_err curl_run(int settings, int body, const char *url, struct sl_error *why)
{
    char data[40];
    (void)snprintf(data, sizeof data, "@/dev/fd/%d", body);
    char *argv[] = {"curl",       "--silent",   "--show-error",  "--fail",
                    "--max-time", CURL_SECONDS, "--output",      "/dev/null",
                    "--config",   "-",          "--data-binary", data,
                    NULL};
    posix_spawn_file_actions_t files;
    pid_t pid = 0;
    int status = 0;
    (void)posix_spawn_file_actions_init(&files);
    int code = posix_spawn_file_actions_adddup2(&files, settings, STDIN_FILENO);
    code = code == 0 ? posix_spawnp(&pid, "curl", &files, NULL, argv, environ) : code;
    (void)posix_spawn_file_actions_destroy(&files);
    if (code == ENOENT) {
        return sl_fail(
            why, SL_ERR_OS,
            "the program curl is not here (apt install curl); --otlp FILE works without");
    }
    if (code != 0) {
        return sl_fail_os(why, code, "curl");
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return sl_fail_os(why, errno, "curl");
        }
    }
    char shown[256];
    (void)sl_url_show(url, shown, sizeof shown);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? SL_OK
               : sl_fail(why, SL_ERR_UNREACHABLE, "%.200s took no spans", shown);
}

static sl_err post(const char *url, const json_t *request, struct sl_error *why)
{
    if (strlen(url) >= URL_BYTES) {
        return sl_fail(why, SL_ERR_INVALID, "a URL of %zu bytes", strlen(url));
    }
    int settings = file_of_settings(url, why);
    int body = settings < 0 ? -1 : file_of_body(request, why);
    sl_err err = body < 0 ? why->code : curl_run(settings, body, url, why);
    if (body >= 0) {
        (void)close(body);
    }
    if (settings >= 0) {
        (void)close(settings);
    }
    return err;
}

sl_err otlp_send(const char *where, json_t *request, struct sl_error *why)
{
    if (request == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the spans");
    }
    sl_err err = is_url(where) ? post(where, request, why) : file_append(where, request, why);
    json_decref(request);
    return err;
}
