/* client/exporter/http_head.c - see http_head.h. RFC 9112 has the grammar. */
#include "client/exporter/http_head.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DIGITS  "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define TOKEN   DIGITS LETTERS "!#$%&'*+-.^_`|~"
#define HOST    DIGITS LETTERS "-._~%!$&'()*+;=:[]"

static bool refuse(struct mc_refusal *refusal, unsigned status, const char *text)
{
    *refusal = (struct mc_refusal){.status = status, .text = text};
    return false;
}

size_t mc_head_scan(const char *text, size_t length, size_t *scanned, struct mc_refusal *refusal)
{
    for (size_t i = *scanned; i < length; i++) {
        unsigned char letter = (unsigned char)text[i];
        bool after_cr = i > 0 && text[i - 1] == '\r';
        bool control = letter < ' ' && letter != '\t' && letter != '\r' && letter != '\n';
        if ((letter == '\n') != after_cr || control || letter == 0x7f) {
            refuse(refusal, 400, "a line ends with CR LF, and has no control characters");
            return 0;
        }
        if (letter == '\n' && (i == 1 || (i >= 3 && text[i - 2] == '\n'))) {
            return i + 1;
        }
    }
    *scanned = length;
    return 0;
}

const char *mc_head_field(const struct mc_head *head, const char *name)
{
    for (uint32_t i = 0; i < head->field_count; i++) {
        if (strcasecmp(head->fields[i].name, name) == 0) {
            return head->fields[i].value;
        }
    }
    return NULL;
}

const char *mc_head_argument(const struct mc_head *head, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = head->arguments; at < head->arguments_end; at += strlen(at) + 1) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            return at + length + 1;
        }
    }
    return NULL;
}

/* Lines are whole: mc_head_scan has seen to it. */
static char *line_take(char **at)
{
    char *line = *at, *end = strchr(line, '\r');
    *end = '\0';
    *at = end + 2;
    return line;
}

/* `http://HOST/PATH` is taken where Host says the same. Gives HOST and its length. */
static bool target_parse(char *target, struct mc_head *out, const char **host, size_t *host_bytes,
                         struct mc_refusal *refusal)
{
    if (strncasecmp(target, "http://", 7) == 0) {
        *host = target + 7;
        *host_bytes = strcspn(*host, "/?");
        target += 7 + *host_bytes;
    }
    if (target[0] != '/' || strpbrk(target, "\t#") != NULL) {
        return refuse(refusal, 400, "the target of a request is a path");
    }
    char *end = target + strlen(target);
    char *arguments = strchr(target, '?');
    out->arguments = arguments != NULL ? arguments + 1 : end;
    out->arguments_end = end;
    for (char *at = arguments; at != NULL; at = strchr(at, '&')) {
        *at++ = '\0';
    }
    out->path = target;
    return true;
}

static bool version_parse(const char *version, struct mc_head *out, struct mc_refusal *refusal)
{
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
        return strncmp(version, "HTTP/", 5) == 0 && strchr(version, ' ') == NULL
                   ? refuse(refusal, 505, "HTTP/1.1 and HTTP/1.0 are spoken here")
                   : refuse(refusal, 400, "a request begins with METHOD TARGET HTTP/1.1");
    }
    out->http_1_0 = version[7] == '0';
    out->closes = out->http_1_0;
    return true;
}

static bool field_parse(char *line, struct mc_head *out, struct mc_refusal *refusal)
{
    size_t name = strspn(line, TOKEN);
    if (name == 0 || line[name] != ':') {
        return refuse(refusal, 400, "a header line is NAME: VALUE, and is not folded");
    }
    if (out->field_count == MC_HEAD_FIELDS_MAX) {
        return refuse(refusal, 431, "a request has at most 64 header lines");
    }
    line[name] = '\0';
    char *value = line + name + 1;
    value += strspn(value, " \t");
    size_t length = strlen(value);
    while (length > 0 && strchr(" \t", value[length - 1]) != NULL) {
        value[--length] = '\0';
    }
    out->fields[out->field_count].name = line;
    out->fields[out->field_count++].value = value;
    return true;
}

/* What is read here must stand once: a proxy may have read the other one. */
static bool fields_are_single(const struct mc_head *head, struct mc_refusal *refusal)
{
    static const char *const single[] = {"Host",          "Content-Length", "Transfer-Encoding",
                                         "Authorization", "Origin",         "Expect"};
    for (size_t i = 0; i < SL_COUNT(single); i++) {
        uint32_t count = 0;
        for (uint32_t k = 0; k < head->field_count; k++) {
            count += strcasecmp(head->fields[k].name, single[i]) == 0;
        }
        if (count > 1) {
            return refuse(refusal, 400,
                          "Host, Content-Length, Transfer-Encoding, Authorization, Origin and "
                          "Expect stand once each");
        }
    }
    return true;
}

static bool length_parse(struct mc_head *out, struct mc_refusal *refusal)
{
    const char *length = mc_head_field(out, "Content-Length");
    const char *coding = mc_head_field(out, "Transfer-Encoding");
    out->has_length = length != NULL;
    out->chunked = coding != NULL;
    if (coding != NULL && (length != NULL || out->http_1_0)) {
        return refuse(refusal, 400,
                      "Transfer-Encoding stands neither beside Content-Length nor in HTTP/1.0");
    }
    if (coding != NULL && strcasecmp(coding, "chunked") != 0) {
        return refuse(refusal, 501, "of transfer codings chunked is spoken here");
    }
    if (length != NULL) {
        size_t digits = strspn(length, DIGITS);
        if (digits == 0 || length[digits] != '\0') {
            return refuse(refusal, 400, "Content-Length is one number");
        }
        out->body_bytes = digits < 20 ? strtoull(length, NULL, 10) : UINT64_MAX;
    }
    return true;
}

static bool host_check(const struct mc_head *head, const char *host, size_t host_bytes,
                       struct mc_refusal *refusal)
{
    const char *field = mc_head_field(head, "Host");
    if (field == NULL && head->http_1_0 && host == NULL) {
        return true;
    }
    if (field == NULL || field[0] == '\0' || field[strspn(field, HOST)] != '\0') {
        return refuse(refusal, 400, "a request names its Host");
    }
    return host == NULL ||
                   (strlen(field) == host_bytes && strncasecmp(field, host, host_bytes) == 0)
               ? true
               : refuse(refusal, 400, "the target of the request has another host than Host");
}

/* `close` in a list of words. */
static bool says_close(const char *words)
{
    while (*words != '\0') {
        words += strspn(words, ", \t");
        size_t length = strcspn(words, ", \t");
        if (length == 5 && strncasecmp(words, "close", 5) == 0) {
            return true;
        }
        words += length;
    }
    return false;
}

static bool connection_parse(struct mc_head *out, struct mc_refusal *refusal)
{
    const char *expect = mc_head_field(out, "Expect");
    for (uint32_t i = 0; i < out->field_count; i++) {
        out->closes |=
            strcasecmp(out->fields[i].name, "Connection") == 0 && says_close(out->fields[i].value);
    }
    if (expect == NULL || out->http_1_0) {
        return true;
    }
    out->waits = strcasecmp(expect, "100-continue") == 0;
    return out->waits ? true : refuse(refusal, 417, "100-continue may be expected here");
}

bool mc_head_parse(char *text, size_t length, struct mc_head *out, struct mc_refusal *refusal)
{
    char *at = text;
    const char *host = NULL;
    size_t host_bytes = 0;
    *out = (struct mc_head){0};
    text[length - 2] = '\0'; /* of the blank line: the last line ends there */
    if (length == 2) {
        return refuse(refusal, 400, "a request begins with METHOD TARGET HTTP/1.1");
    }
    char *line = line_take(&at);
    char *target = line + strspn(line, TOKEN);
    char *version = target != line && *target == ' ' ? strchr(target + 1, ' ') : NULL;
    if (version == NULL) {
        return refuse(refusal, 400, "a request begins with METHOD TARGET HTTP/1.1");
    }
    *target++ = '\0';
    *version++ = '\0';
    out->method = line;
    if (!version_parse(version, out, refusal) ||
        !target_parse(target, out, &host, &host_bytes, refusal)) {
        return false;
    }
    while (*at != '\0') {
        if (!field_parse(line_take(&at), out, refusal)) {
            return false;
        }
    }
    return fields_are_single(out, refusal) && length_parse(out, refusal) &&
           host_check(out, host, host_bytes, refusal) && connection_parse(out, refusal);
}
