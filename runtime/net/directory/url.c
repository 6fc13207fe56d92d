/* runtime/net/directory/url.c - parses the address of the directory's server. */
#include "runtime/base/sl_address.h"
#include "runtime/base/sl_hex.h"
#include "runtime/base/sl_parse.h"
#include "runtime/net/directory/internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

bool directory_name_good(const char *text, size_t length)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\0' || strchr(good, text[i]) == NULL) {
            return false;
        }
    }
    return length > 0 && length < SL_DIRECTORY_NAME_BYTES;
}

bool directory_address_good(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] <= ' ' || text[i] > '~') {
            return false;
        }
    }
    return length < SL_DIRECTORY_ADDRESS_BYTES;
}

/* Decodes %XX in part of a URL. False: malformed or too long. */
static bool part_decode(const char *from, size_t length, char out[DIRECTORY_SECRET_BYTES])
{
    size_t to = 0;
    for (size_t i = 0; i < length; i++) {
        int value = (unsigned char)from[i];
        if (from[i] == '%') {
            int high = i + 2 < length ? sl_hex_digit(from[i + 1]) : -1;
            int low = i + 2 < length ? sl_hex_digit(from[i + 2]) : -1;
            value = high < 0 || low < 0 ? 0 : high * 16 + low;
            i += 2;
        }
        if (value == 0 || to + 1 >= DIRECTORY_SECRET_BYTES) {
            return false;
        }
        out[to++] = (char)value;
    }
    out[to] = '\0';
    return true;
}

static sl_err place_database(const char *text, struct directory_place *out, struct sl_error *why)
{
    uint64_t number = 0;
    if (*text == '\0') {
        return SL_OK;
    }
    if (!sl_parse_within(text, 0, 65535, &number)) {
        return sl_fail(why, SL_ERR_CONFIG, "directory_url: '%.32s' is no number of a database",
                       text);
    }
    out->database = (uint32_t)number;
    return SL_OK;
}

static sl_err place_unix(const char *path, struct directory_place *out, struct sl_error *why)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *query = strchr(path, '?');
    size_t length = query == NULL ? strlen(path) : (size_t)(query - path);
    if (path[0] != '/' || length < 2 || length >= sizeof(address.sun_path)) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "directory_url: the path of the socket must be absolute and below %zu bytes",
                       sizeof(address.sun_path));
    }
    if (query != NULL && strncmp(query, "?db=", 4) != 0) {
        return sl_fail(why, SL_ERR_CONFIG, "directory_url: '%.32s' is not ?db=NUMBER", query);
    }
    memcpy(address.sun_path, path, length);
    memcpy(&out->address, &address, sizeof(address));
    out->address_bytes = sizeof(address);
    (void)snprintf(out->about, sizeof(out->about), "redis at %s", address.sun_path);
    return query == NULL ? SL_OK : place_database(query + 4, out, why);
}

/* Splits HOST:PORT and drops the brackets of IPv6. */
static sl_err place_host(const char *text, size_t length, struct directory_place *out,
                         struct sl_error *why)
{
    char place[128], host[128];
    uint16_t port = 0;
    (void)snprintf(place, sizeof(place), "%.*s", (int)SL_MIN(length, sizeof(place)), text);
    if (length >= sizeof(place) || !sl_address_parse(place, host, sizeof(host), &port)) {
        return sl_fail(why, SL_ERR_CONFIG, "directory_url: no port from 1 to 65535 in '%.*s'",
                       (int)SL_MIN(length, 64u), text);
    }
    const char *ip = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    if (!sl_address_ip(ip, port, &out->address, &out->address_bytes)) {
        /* Resolving may block for seconds, which an actor must not. */
        return sl_fail(why, SL_ERR_CONFIG,
                       "directory_url: '%s' is no IP address (names are not resolved)", host);
    }
    (void)snprintf(out->about, sizeof(out->about), "redis at %s port %u", host, port);
    return SL_OK;
}

sl_err directory_place_from(const char *url, struct directory_place *out, struct sl_error *why)
{
    *out = (struct directory_place){0};
    if (strncmp(url, "unix://", 7) == 0) {
        return place_unix(url + 7, out, why);
    }
    if (strncmp(url, "redis://", 8) != 0) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "directory_url: expected redis://[USER:PASSWORD@]IP:PORT[/DB] or "
                       "unix:///PATH[?db=DB]");
    }
    const char *rest = url + 8;
    const char *at = strrchr(rest, '@');
    if (at != NULL) {
        const char *colon = memchr(rest, ':', (size_t)(at - rest));
        if (colon == NULL || !part_decode(rest, (size_t)(colon - rest), out->user) ||
            !part_decode(colon + 1, (size_t)(at - colon - 1), out->password)) {
            return sl_fail(why, SL_ERR_CONFIG,
                           "directory_url: before '@' must be USER:PASSWORD with %%XX and at most "
                           "%u bytes each",
                           DIRECTORY_SECRET_BYTES - 1);
        }
        rest = at + 1;
    }
    const char *slash = strchr(rest, '/');
    size_t length = slash == NULL ? strlen(rest) : (size_t)(slash - rest);
    sl_err err = place_host(rest, length, out, why);
    return err == SL_OK && slash != NULL ? place_database(slash + 1, out, why) : err;
}
