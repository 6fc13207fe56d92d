/* actors/registrar/engines/identities.c - a file beside the logs that says what model identities
 * consist of. An identity is a digest: to find out why blocks are not found one compares what two
 * identities consist of, even when the engine that stored the blocks has left. Each line is JSON
 * for one identity. */
#include "actors/registrar/engines/engines.h"
#include "runtime/base/sl_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX (256 * 1024u)
#define LINE_BYTES_MAX (24 * 1024u) /* for one engine; further facts are left out */

static size_t begin_make(char *line, size_t room, const char *identity)
{
    char text[256];
    (void)sl_json_escape(text, sizeof(text), identity);
    return (size_t)snprintf(line, room, "{\"identity\":\"%s\"", text);
}

static size_t line_make(char *line, const struct sl_body_engine_register *body)
{
    size_t at = begin_make(line, LINE_BYTES_MAX, body->model.at);
    for (uint64_t i = 0; i < body->facts.count; i++) {
        const struct sl_item_fact *fact = &body->facts.at[i];
        char name[256];
        char value[2048];
        (void)sl_json_escape(name, sizeof(name), fact->name.at);
        (void)sl_json_escape(value, sizeof(value), fact->value.at);
        int wrote = snprintf(line + at, LINE_BYTES_MAX - at, ",\"%s\":\"%s\"", name, value);
        if (wrote < 0 || at + (size_t)wrote + 3 > LINE_BYTES_MAX) {
            break;
        }
        at += (size_t)wrote;
    }
    memcpy(line + at, "}\n", 3);
    return at + 2;
}

/* Whether the text has the identity. *half: start of the line after the middle. */
static bool text_has(const char *text, size_t length, const char *identity, size_t *half)
{
    char begin[300];
    size_t begin_bytes = begin_make(begin, sizeof(begin), identity);
    const char *end = length > 0 ? memchr(text + length / 2, '\n', length - length / 2) : NULL;
    *half = end != NULL ? (size_t)(end - text) + 1 : length;
    return memmem(text, length, begin, begin_bytes) != NULL;
}

static bool all_written(int fd, const char *at, size_t length)
{
    return write(fd, at, length) == (ssize_t)length; /* files take all bytes or fail */
}

/* Rewrites the file with its newer half and the new line. */
static bool halve(const char *path, const char *text, size_t length)
{
    char next[1200];
    (void)snprintf(next, sizeof(next), "%s.new", path);
    int fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool fine = fd >= 0 && all_written(fd, text, length);
    if (fd >= 0) {
        (void)close(fd);
    }
    return fine && rename(next, path) == 0;
}

void reg_identity_note(struct registrar *self, const struct sl_body_engine_register *body)
{
    char path[sizeof(self->env->paths->log_dir) + 32];
    if (body->facts.count == 0 || self->env->paths == NULL) {
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/identities.jsonl", self->env->paths->log_dir);
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    char *text = fd < 0 ? NULL : malloc(FILE_BYTES_MAX + LINE_BYTES_MAX + 2);
    ssize_t length = text == NULL ? -1 : read(fd, text, FILE_BYTES_MAX);
    size_t half = 0;
    bool fine = length >= 0;
    if (fine) {
        text[length] = '\0';
        if (!text_has(text, (size_t)length, body->model.at, &half)) {
            char *line = text + length;
            bool torn = length > 0 && line[-1] != '\n'; /* a torn last line stays separate */
            *line = '\n';
            size_t bytes = torn + line_make(line + torn, body);
            fine = (size_t)length + bytes <= FILE_BYTES_MAX
                       ? all_written(fd, line, bytes)
                       : halve(path, text + half, (size_t)length - half + bytes);
        }
    }
    if (!fine) {
        reg_log(self, SL_LOG_WARN, 0, "%s: %s (explain will not know what this identity is)", path,
                strerror(errno));
    }
    free(text);
    if (fd >= 0) {
        (void)close(fd);
    }
}
