/* runtime/base/sl_address.c - parsing of HOST:PORT, ports and IP addresses. */
#include "runtime/base/sl_address.h"
#include "runtime/base/sl_parse.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

bool sl_address_split(const char *text, enum sl_port_rule rule, char *host, size_t room,
                      const char **port)
{
    const char *colon = strrchr(text, ':');
    const char *end = colon != NULL ? colon : text + strlen(text);
    const char *start = text;
    if (text[0] == '[') {
        start++;
        end = strchr(text, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':')) {
            return false;
        }
        colon = end[1] == ':' ? end + 1 : NULL;
    } else if (rule == SL_PORT_OPTIONAL && colon != NULL && strchr(text, ':') != colon) {
        colon = NULL;
        end = text + strlen(text);
    }
    size_t length = (size_t)(end - start);
    if (length >= room || (rule == SL_PORT_NEEDED && colon == NULL)) {
        return false;
    }
    memcpy(host, start, length);
    host[length] = '\0';
    *port = colon != NULL ? colon + 1 : NULL;
    return true;
}

bool sl_url_redact(const char *url, char *out, size_t room)
{
    const char *authority = strstr(url, "://");
    size_t length = authority != NULL ? strcspn(authority + 3, "/?#") : 0;
    const char *at = authority != NULL ? memrchr(authority + 3, '@', length) : NULL;
    const char *colon = authority != NULL ? memchr(authority + 3, ':', length) : NULL;
    bool redis =
        authority != NULL && authority - url >= 5 && memcmp(authority - 5, "redis", 5) == 0;
    if (at == NULL && (colon != NULL || redis)) {
        /* A slash in name or password is invalid but occurs, and directory_url accepts it. */
        at = strrchr(authority + 3, '@');
    }
    if (at == NULL) {
        (void)snprintf(out, room, "%s", url);
        return false;
    }
    colon = memchr(authority + 3, ':', (size_t)(at - authority - 3));
    const char *secret = colon != NULL ? colon + 1 : authority + 3;
    (void)snprintf(out, room, "%.*s%s%s", (int)(secret - url), url, secret < at ? "***" : "", at);
    return secret < at;
}

bool sl_port_parse(const char *text, uint16_t *port)
{
    uint64_t value = 0;
    if (strlen(text) > 5 || !sl_parse_within(text, 0, UINT16_MAX, &value)) {
        return false;
    }
    *port = (uint16_t)value;
    return true;
}

bool sl_address_parse(const char *text, char *host, size_t room, uint16_t *port)
{
    const char *port_text = NULL;
    return sl_address_split(text, SL_PORT_NEEDED, host, room, &port_text) && host[0] != '\0' &&
           sl_port_parse(port_text, port) && *port != 0;
}

bool sl_address_ip(const char *ip, uint16_t port, struct sockaddr_storage *out, socklen_t *length)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET, ip, &v4.sin_addr) == 1) {
        memcpy(out, &v4, sizeof(v4));
        *length = sizeof(v4);
        return true;
    }
    if (inet_pton(AF_INET6, ip, &v6.sin6_addr) == 1) {
        memcpy(out, &v6, sizeof(v6));
        *length = sizeof(v6);
        return true;
    }
    return false;
}
