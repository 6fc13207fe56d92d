/* client/exporter/http_input.c - see http_input.h. */
#include "client/exporter/http_input.h"
#include "runtime/sl_parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

bool mc_send(int fd, const char *bytes, size_t length, bool more)
{
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        if (sent <= 0 && !(sent < 0 && errno == EINTR)) {
            return false;
        }
        bytes += sent > 0 ? sent : 0;
        length -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

/* More bytes of the peer, behind those that are there. */
static bool bytes_more(struct mc_input *input)
{
    ssize_t got = 0;
    do {
        got = recv(input->fd, input->in + input->used, sizeof input->in - input->used, 0);
    } while (got < 0 && errno == EINTR);
    input->used += got > 0 ? (size_t)got : 0;
    return got > 0;
}

enum mc_read mc_head_read(struct mc_input *input, struct mc_refusal *refusal)
{
    size_t scanned = 0;
    input->used -= input->at;
    memmove(input->in, input->in + input->at, input->used);
    input->at = 0;
    for (;;) {
        size_t most = SL_MIN(input->used, MC_HEAD_BYTES_MAX);
        input->head_bytes = mc_head_scan(input->in, most, &scanned, refusal);
        if (input->head_bytes > 0) {
            input->at = input->head_bytes;
            return mc_head_parse(input->in, input->head_bytes, &input->head, refusal)
                       ? MC_READ_FINE
                       : MC_READ_REFUSED;
        }
        if (refusal->status == 0 && most == MC_HEAD_BYTES_MAX) {
            bool line = memchr(input->in, '\n', most) != NULL;
            *refusal = (struct mc_refusal){line ? 431 : 414, "a head has at most 32 KiB"};
        }
        if (refusal->status != 0) {
            return MC_READ_REFUSED;
        }
        if (!bytes_more(input)) {
            return MC_READ_GONE;
        }
    }
}

/* Some of what follows the head, at most length bytes of it; 0: the peer is gone. */
static size_t rest_take(struct mc_input *input, uint64_t length, const char **bytes)
{
    if (input->at == input->used) {
        input->at = input->used = input->head_bytes;
        if (!bytes_more(input)) {
            return 0;
        }
    }
    size_t share = SL_MIN(length, input->used - input->at);
    *bytes = input->in + input->at;
    input->at += share;
    return share;
}

static bool body_room(struct mc_input *input, size_t wanted)
{
    size_t room = SL_MAX(input->body_room, MC_INPUT_BYTES);
    while (room < wanted) {
        room *= 2;
    }
    char *grown = room > input->body_room && input->charge(input->context, room)
                      ? realloc(input->body, room)
                      : NULL;
    if (grown != NULL) {
        input->body = grown;
        input->body_room = room;
    }
    return wanted <= input->body_room;
}

/* length bytes of the body; what no handler reads is not kept. */
static enum mc_read body_bytes_read(struct mc_input *input, uint64_t length, bool keeps,
                                    struct mc_refusal *refusal)
{
    const char *bytes = NULL;
    while (length > 0) {
        size_t got = rest_take(input, length, &bytes);
        if (got == 0) {
            return MC_READ_GONE;
        }
        if (keeps && !body_room(input, input->body_bytes + got)) {
            *refusal = (struct mc_refusal){503, "too many bodies at a time: try again"};
            return MC_READ_REFUSED;
        }
        if (keeps) {
            memcpy(input->body + input->body_bytes, bytes, got);
        }
        input->body_bytes += got;
        length -= got;
    }
    return MC_READ_FINE;
}

/* The size of a chunk and the end of its line, or, where size is NULL, the end of a line alone.
 * Neither extensions nor trailers are read: nobody needs them, and proxies differ about them. */
static enum mc_read chunk_line_read(struct mc_input *input, uint64_t *size,
                                    struct mc_refusal *refusal)
{
    const char *byte = NULL;
    char digits[9] = "";
    size_t count = 0;
    for (bool cr = false;;) {
        if (rest_take(input, 1, &byte) == 0) {
            return MC_READ_GONE;
        }
        if (cr && *byte == '\n') {
            return MC_READ_FINE;
        }
        if (!cr && size != NULL && count < sizeof digits - 1 && isxdigit((unsigned char)*byte)) {
            digits[count++] = *byte;
        } else if (!cr && *byte == '\r' && (size == NULL || sl_parse_hex(digits, size))) {
            cr = true;
        } else {
            *refusal = (struct mc_refusal){400, "a chunk is SIZE CR LF, its bytes, CR LF"};
            return MC_READ_REFUSED;
        }
    }
}

static enum mc_read chunks_read(struct mc_input *input, bool keeps, struct mc_refusal *refusal)
{
    uint64_t size = 0;
    enum mc_read end = MC_READ_FINE;
    do {
        size = 0;
        end = chunk_line_read(input, &size, refusal);
        if (end == MC_READ_FINE && size > MC_HTTP_BODY_BYTES_MAX - input->body_bytes) {
            *refusal = (struct mc_refusal){413, "the body is too large"};
            return MC_READ_REFUSED;
        }
        end = end == MC_READ_FINE ? body_bytes_read(input, size, keeps, refusal) : end;
        end = end == MC_READ_FINE ? chunk_line_read(input, NULL, refusal) : end;
    } while (end == MC_READ_FINE && size > 0);
    return end;
}

enum mc_read mc_body_read(struct mc_input *input, bool keeps, struct mc_refusal *refusal)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const struct mc_head *head = &input->head;
    bool comes = head->chunked || head->body_bytes > 0;
    if (comes && head->waits && input->at == input->used &&
        !mc_send(input->fd, go_on, sizeof go_on - 1, false)) {
        return MC_READ_GONE;
    }
    return head->chunked ? chunks_read(input, keeps, refusal)
                         : body_bytes_read(input, head->body_bytes, keeps, refusal);
}

bool mc_input_drop(struct mc_input *input)
{
    input->used = 0;
    return bytes_more(input);
}

void mc_input_next(struct mc_input *input)
{
    free(input->body);
    input->body = NULL;
    input->body_bytes = input->body_room = 0;
    (void)input->charge(input->context, 0);
}
