/* client/tools/exporter/http_head.c - see http_head.h. RFC 9112 has the grammar. */
#include "client/tools/exporter/http_head.h"

#include <string.h>
#include <strings.h>

#define TOKEN      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&'*+-.^_`|~"
#define NO_REQUEST "a request is METHOD PATH HTTP/1.1"

ssize_t http_head_bytes(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char letter = (unsigned char)text[i];
        bool after_cr = i > 0 && text[i - 1] == '\r';
        bool control = letter < ' ' && letter != '\t' && letter != '\r' && letter != '\n';
        if ((letter == '\n') != after_cr || control || letter == 0x7f) {
            return -1;
        }
        if (letter == '\n' && (i == 1 || (i >= 3 && text[i - 2] == '\n'))) {
            return (ssize_t)i + 1;
        }
    }
    return 0;
}

/* Cuts off the next line; http_head_bytes has found its end. */
static char *line_take(char **at)
{
    char *line = *at, *end = strchr(line, '\r');
    *end = '\0';
    *at = end + 2;
    return line;
}

static const char *request_parse(char *line, struct http_head *out)
{
    char *target = line + strspn(line, TOKEN);
    char *version = target != line && *target == ' ' ? strchr(target + 1, ' ') : NULL;
    if (version == NULL || target[1] != '/' || strpbrk(target, "\t#") != NULL) {
        return NO_REQUEST;
    }
    *target++ = '\0';
    *version++ = '\0';
    target[strcspn(target, "?")] = '\0';
    out->method = line;
    out->path = target;
    return strcmp(version, "HTTP/1.1") == 0 || strcmp(version, "HTTP/1.0") == 0 ? NULL : NO_REQUEST;
}

/* Fields that are used may occur only once: a proxy may have read the other one. */
static const char *field_parse(char *line, struct http_head *out)
{
    const struct {
        const char *name, **value;
    } fields[] = {
        {"Host", &out->host}, {"Authorization", &out->authorization}, {"Origin", &out->origin}};
    size_t name = strspn(line, TOKEN);
    if (name == 0 || line[name] != ':') {
        return "a header line is NAME: VALUE, and is not folded";
    }
    line[name] = '\0';
    char *value = line + name + 1;
    value += strspn(value, " \t");
    for (size_t end = strlen(value); end > 0 && strchr(" \t", value[end - 1]) != NULL; end--) {
        value[end - 1] = '\0';
    }
    for (size_t i = 0; i < SL_COUNT(fields); i++) {
        if (strcasecmp(line, fields[i].name) == 0) {
            if (*fields[i].value != NULL) {
                return "Host, Authorization and Origin may each occur only once";
            }
            *fields[i].value = value;
        }
    }
    return NULL;
}

const char *http_head_parse(char *text, size_t length, struct http_head *out)
{
    char *at = text;
    *out = (struct http_head){0};
    text[length - 2] = '\0'; /* start of the blank line, which ends the last line */
    const char *wrong = length > 2 ? request_parse(line_take(&at), out) : NO_REQUEST;
    while (wrong == NULL && *at != '\0') {
        wrong = field_parse(line_take(&at), out);
    }
    return wrong;
}
