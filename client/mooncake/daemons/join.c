/* client/mooncake/daemons/join.c - see join.h. */
#include "client/mooncake/daemons/join.h"

#include "runtime/sl_address.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_trust.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINE_BYTES_MAX   32768u
#define HEX_BYTES        65u
#define SERVE_NS         (5 * SL_NS_PER_S) /* for each line */
#define GREET_NS         (3 * SL_NS_PER_S)
#define SECRET_BYTES_MIN 16u

/* ---- secrets and macs ---- */

static sl_err secret_check(char *secret, const char *source, char **out, struct sl_error *why)
{
    if (secret == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%s", source);
    }
    if (strlen(secret) < SECRET_BYTES_MIN) {
        free(secret);
        return sl_fail(why, SL_ERR_CONFIG, "%s: a secret has at least %u characters", source,
                       SECRET_BYTES_MIN);
    }
    *out = secret;
    return SL_OK;
}

sl_err mc_secret_get(const char *variable, char **out, struct sl_error *why)
{
    char file_variable[64], line[1024] = "";
    (void)snprintf(file_variable, sizeof file_variable, "%s_FILE", variable);
    const char *secret = getenv(variable);
    const char *path = getenv(file_variable);
    *out = NULL;
    if (secret != NULL && secret[0] != '\0') {
        return secret_check(strdup(secret), variable, out, why);
    }
    if (path == NULL || path[0] == '\0') {
        return SL_OK;
    }
    struct sl_error inner = {0};
    if (sl_trust_read(path, SL_TRUST_SECRET, false, line, sizeof line, &inner) != SL_OK) {
        return sl_fail(why, SL_ERR_CONFIG, "%s: %s", file_variable, inner.text);
    }
    line[strcspn(line, "\r\n")] = '\0';
    sl_err err = secret_check(strdup(line), path, out, why);
    explicit_bzero(line, sizeof line);
    return err;
}

static void hex_of(const unsigned char bytes[32], char out[HEX_BYTES])
{
    for (unsigned i = 0; i < 32; i++) {
        (void)snprintf(out + (size_t)2 * i, 3, "%02x", bytes[i]);
    }
}

static sl_err challenge_make(char out[HEX_BYTES], struct sl_error *why)
{
    unsigned char random[32];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return sl_fail_os(why, errno, "getrandom");
    }
    hex_of(random, out);
    return SL_OK;
}

static bool mac_make(const char *secret, const char *what, const char *challenge, const char *text,
                     char out[HEX_BYTES])
{
    unsigned char mac[32];
    unsigned length = 0;
    size_t bytes = strlen(what) + strlen(challenge) + strlen(text) + 4;
    char *all = malloc(bytes);
    if (all == NULL) {
        return false;
    }
    int used = snprintf(all, bytes, "%s\n%s\n%s\n", what, challenge, text);
    bool made = HMAC(EVP_sha256(), secret, (int)strlen(secret), (const unsigned char *)all,
                     (size_t)used, mac, &length) != NULL &&
                length == sizeof mac;
    free(all);
    if (made) {
        hex_of(mac, out);
    }
    return made;
}

static bool mac_fits(const char *secret, const char *what, const char *challenge, const char *text,
                     const char *mac)
{
    char want[HEX_BYTES];
    return mac != NULL && text != NULL && strlen(mac) == HEX_BYTES - 1 &&
           mac_make(secret, what, challenge, text, want) &&
           CRYPTO_memcmp(want, mac, HEX_BYTES - 1) == 0;
}

/* ---- lines ---- */

static sl_err wait_for(int fd, short events, uint64_t deadline_ns, struct sl_error *why)
{
    for (;;) {
        uint64_t now_ns = sl_clock_monotonic_ns();
        struct pollfd one = {.fd = fd, .events = events};
        if (now_ns >= deadline_ns) {
            return sl_fail(why, SL_ERR_TIMEOUT, "the other side said nothing in time");
        }
        int got = poll(&one, 1, (int)((deadline_ns - now_ns) / SL_NS_PER_MS) + 1);
        if (got > 0) {
            return SL_OK;
        }
        if (got < 0 && errno != EINTR) {
            return sl_fail_os(why, errno, "poll");
        }
    }
}

static sl_err line_send(int fd, json_t *message, uint64_t deadline_ns, struct sl_error *why)
{
    char *text = message != NULL ? json_dumps(message, JSON_COMPACT) : NULL;
    size_t length = text != NULL ? strlen(text) : 0, done = 0;
    json_decref(message);
    if (text == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "a line of JSON");
    }
    text[length] = '\n'; /* instead of the terminating zero: the length counts */
    sl_err err = SL_OK;
    while (err == SL_OK && done < length + 1) {
        ssize_t sent = send(fd, text + done, length + 1 - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            done += (size_t)sent;
        } else if (errno == EAGAIN || errno == EINTR) {
            err = wait_for(fd, POLLOUT, deadline_ns, why);
        } else {
            err = sl_fail(why, SL_ERR_UNREACHABLE, "the connection ended: %s", strerror(errno));
        }
    }
    free(text);
    return err;
}

/* What both sides send is one object of texts and numbers; nesting would cost whoever parses it a
 * stack as deep as a stranger likes. */
static bool line_is_flat(const char *line, size_t length)
{
    bool in_text = false;
    uint32_t objects = 0;
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '"') {
            in_text = !in_text;
        } else if (in_text) {
            i += line[i] == '\\' ? 1 : 0;
        } else if (line[i] == '[' || (line[i] == '{' && ++objects > 1)) {
            return false;
        }
    }
    return true;
}

/* One line as JSON. Nothing is read beyond it: the sides take turns. */
static sl_err line_take(int fd, uint64_t deadline_ns, json_t **out, struct sl_error *why)
{
    char line[LINE_BYTES_MAX] = "";
    size_t length = 0;
    json_error_t wrong;
    while (memchr(line, '\n', length) == NULL) {
        if (length == sizeof line) {
            return sl_fail(why, SL_ERR_PROTOCOL, "a line of more than %u bytes", LINE_BYTES_MAX);
        }
        ssize_t got = recv(fd, line + length, sizeof line - length, MSG_DONTWAIT);
        if (got > 0) {
            length += (size_t)got;
        } else if (got == 0) {
            return sl_fail(why, SL_ERR_UNREACHABLE, "the other side closed the connection");
        } else if (errno == EAGAIN || errno == EINTR) {
            sl_err err = wait_for(fd, POLLIN, deadline_ns, why);
            if (err != SL_OK) {
                return err;
            }
        } else {
            return sl_fail(why, SL_ERR_UNREACHABLE, "the connection ended: %s", strerror(errno));
        }
    }
    if (!line_is_flat(line, length)) {
        return sl_fail(why, SL_ERR_PROTOCOL, "what came is no line of texts");
    }
    *out = json_loadb(line, length, JSON_REJECT_DUPLICATES, &wrong);
    return json_is_object(*out)
               ? SL_OK
               : (json_decref(*out), *out = NULL,
                  sl_fail(why, SL_ERR_PROTOCOL, "what came is no line of JSON: %s", wrong.text));
}

static const char *text_in(const json_t *object, const char *field)
{
    return json_string_value(json_object_get(object, field));
}

/* IP of one end of a connection, in brackets when it is IPv6. */
static bool ip_of(const struct sockaddr_storage *at, char out[64])
{
    char text[INET6_ADDRSTRLEN] = "";
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)at;
    if (at->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)at;
        return inet_ntop(AF_INET, &four->sin_addr, out, 64) != NULL;
    }
    if (at->ss_family != AF_INET6 ||
        inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text) == NULL) {
        return false;
    }
    bool mapped = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr);
    (void)snprintf(out, 64, mapped ? "%s" : "[%s]", mapped ? text + strlen("::ffff:") : text);
    return true;
}

static bool control_of(const struct sockaddr_storage *at, json_int_t port, char out[129])
{
    char ip[64];
    bool fine = port >= 1 && port <= 65535 && ip_of(at, ip);
    (void)snprintf(out, 129, "%s:%d", fine ? ip : "", fine ? (int)port : 0);
    return fine;
}

static bool member_read(const json_t *item, struct mc_member *out)
{
    const char *name = text_in(item, "name"), *key = text_in(item, "key");
    *out = (struct mc_member){0};
    if (name == NULL || key == NULL || strlen(name) >= sizeof out->name ||
        strlen(key) >= sizeof out->key) {
        return false;
    }
    memcpy(out->name, name, strlen(name));
    memcpy(out->key, key, strlen(key));
    return true;
}

/* ---- the master's side ---- */

static json_t *nodes_list(const struct mc_join_server *server)
{
    struct mc_member members[MC_MEMBERS_MAX];
    uint32_t count = mc_members_list(server->members, members);
    json_t *list = json_array();
    (void)json_array_append_new(
        list, json_pack("{s:s, s:s, s:i}", "name", mc_members_name(server->members), "key",
                        mc_members_key(server->members), "port", (int)server->control_port));
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:s, s:s}", "name", members[i].name, "key",
                                              members[i].key, "control", members[i].control));
    }
    return list;
}

static sl_err join_take(int fd, const struct mc_join_server *server, const json_t *line,
                        const char *challenge, char theirs[HEX_BYTES], bool *changed,
                        struct sl_error *why)
{
    struct mc_member member;
    struct sockaddr_storage at = {0};
    socklen_t at_bytes = sizeof at;
    const char *text = text_in(line, "join");
    if (!mac_fits(server->secret, "join", challenge, text, text_in(line, "mac"))) {
        return sl_fail(why, SL_ERR_PERMISSION, "another secret, or none");
    }
    json_t *join = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *asked = text_in(join, "challenge");
    sl_err err = SL_OK;
    if (getpeername(fd, (struct sockaddr *)&at, &at_bytes) != 0 || !member_read(join, &member) ||
        asked == NULL || strlen(asked) != HEX_BYTES - 1 ||
        !control_of(&at, json_integer_value(json_object_get(join, "port")), member.control)) {
        err = sl_fail(why, SL_ERR_PROTOCOL, "a join without name, key, port or challenge");
    } else {
        memcpy(theirs, asked, HEX_BYTES);
        err = mc_members_add(server->members, &member, changed, why);
    }
    json_decref(join);
    return err;
}

static void join_answer(int fd, const struct mc_join_server *server, const char *challenge,
                        uint64_t deadline_ns)
{
    char mac[HEX_BYTES];
    json_t *list = nodes_list(server);
    char *text = json_dumps(list, JSON_COMPACT);
    if (text != NULL && mac_make(server->secret, "nodes", challenge, text, mac)) {
        (void)line_send(fd, json_pack("{s:s, s:s}", "nodes", text, "mac", mac), deadline_ns, NULL);
    }
    free(text);
    json_decref(list);
}

void mc_join_serve(int fd, const struct mc_join_server *server, mc_join_known_fn known,
                   void *context, bool *changed)
{
    char challenge[HEX_BYTES], theirs[HEX_BYTES];
    struct sl_error why = {0};
    uint64_t deadline_ns = sl_clock_monotonic_ns() + SERVE_NS;
    json_t *line = NULL;
    json_t *greeting = json_pack("{s:s}", "sluice", SL_VERSION);
    *changed = false;
    if (server->instance != NULL) {
        (void)json_object_set_new(greeting, "instance", json_string(server->instance));
    }
    bool open = server->secret != NULL && challenge_make(challenge, NULL) == SL_OK;
    if (open) {
        (void)json_object_set_new(greeting, "challenge", json_string(challenge));
    }
    if (line_send(fd, greeting, deadline_ns, &why) != SL_OK || !open) {
        return;
    }
    uint64_t greet_ns = server->greet_ns != 0 ? server->greet_ns : GREET_NS;
    if (line_take(fd, sl_clock_monotonic_ns() + greet_ns, &line, &why) != SL_OK) {
        return; /* a probe, or nobody of ours */
    }
    deadline_ns = sl_clock_monotonic_ns() + SERVE_NS;
    if (mac_fits(server->secret, "join", challenge, text_in(line, "join"), text_in(line, "mac")) &&
        known != NULL) {
        known(context);
    }
    if (join_take(fd, server, line, challenge, theirs, changed, &why) == SL_OK) {
        join_answer(fd, server, theirs, deadline_ns);
    } else {
        (void)line_send(fd, json_pack("{s:s}", "error", why.text), deadline_ns, NULL);
    }
    json_decref(line);
}

/* ---- who joins ---- */

sl_err mc_join_parse(const char *text, char host[256], uint16_t *port, struct sl_error *why)
{
    if (!sl_address_parse(text, host, 256, port)) {
        return sl_fail(why, SL_ERR_CONFIG, "'%.128s' is not HOST:PORT of a master", text);
    }
    return SL_OK;
}

static sl_err connect_to(const struct mc_join *join, uint64_t deadline_ns, int *out,
                         struct sl_error *why)
{
    char port[8];
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    (void)snprintf(port, sizeof port, "%u", join->port);
    int wrong = getaddrinfo(join->host, port, &hints, &list);
    if (wrong != 0) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "master %s: %s", join->host, gai_strerror(wrong));
    }
    sl_err err = sl_fail(why, SL_ERR_UNREACHABLE, "master %s has no address", join->host);
    for (const struct addrinfo *at = list; at != NULL && err != SL_OK; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), code = 0;
        socklen_t code_bytes = sizeof code;
        if (fd < 0) {
            continue;
        }
        if (connect(fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS) {
            code = errno;
        } else if (wait_for(fd, POLLOUT, deadline_ns, why) != SL_OK) {
            code = ETIMEDOUT;
        } else {
            (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &code_bytes);
        }
        if (code == 0) {
            *out = fd;
            err = SL_OK;
        } else {
            (void)close(fd);
            err = sl_fail(why, SL_ERR_UNREACHABLE, "master %s:%s: %s", join->host, port,
                          strerror(code));
        }
    }
    freeaddrinfo(list);
    return err;
}

static sl_err greeting_take(int fd, uint64_t deadline_ns, char challenge[HEX_BYTES],
                            struct sl_error *why)
{
    json_t *line = NULL;
    sl_err err = line_take(fd, deadline_ns, &line, why);
    const char *theirs = text_in(line, "challenge");
    if (err == SL_OK && text_in(line, "sluice") == NULL) {
        err = sl_fail(why, SL_ERR_PROTOCOL, "what answers there is no master of Sluice");
    } else if (err == SL_OK && (theirs == NULL || strlen(theirs) != HEX_BYTES - 1)) {
        err =
            sl_fail(why, SL_ERR_PERMISSION,
                    "the master serves its own host alone: start it with MOONCAKE_CLUSTER_SECRET");
    } else if (err == SL_OK) {
        memcpy(challenge, theirs, HEX_BYTES);
    }
    json_decref(line);
    return err;
}

static sl_err join_say(int fd, const struct mc_join *join, const char *theirs, const char *ours,
                       uint64_t deadline_ns, struct sl_error *why)
{
    char mac[HEX_BYTES];
    json_t *said = json_pack("{s:s, s:s, s:i, s:s}", "name", mc_members_name(join->members), "key",
                             mc_members_key(join->members), "port", (int)join->control_port,
                             "challenge", ours);
    char *text = json_dumps(said, JSON_COMPACT);
    json_decref(said);
    sl_err err =
        text != NULL && mac_make(join->secret, "join", theirs, text, mac)
            ? line_send(fd, json_pack("{s:s, s:s}", "join", text, "mac", mac), deadline_ns, why)
            : sl_fail(why, SL_ERR_NO_MEMORY, "a line of JSON");
    free(text);
    return err;
}

static sl_err nodes_take(const struct mc_join *join, const json_t *line, const char *ours,
                         const struct sockaddr_storage *master, bool *changed, struct sl_error *why)
{
    const char *text = text_in(line, "nodes"), *refusal = text_in(line, "error");
    size_t index = 0;
    const json_t *item = NULL;
    if (refusal != NULL) {
        return sl_fail(why, SL_ERR_PERMISSION, "the master refused: %.120s", refusal);
    }
    if (!mac_fits(join->secret, "nodes", ours, text, text_in(line, "mac"))) {
        return sl_fail(why, SL_ERR_PERMISSION, "the master has another secret");
    }
    json_t *list = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    bool fits = json_is_array(list) && json_array_size(list) <= MC_MEMBERS_MAX + 1;
    sl_err err = fits ? SL_OK : sl_fail(why, SL_ERR_PROTOCOL, "no list of nodes");
    /* All that are known still, before one that is new takes the place of one that is not. */
    json_array_foreach(list, index, item)
    {
        const char *name = text_in(item, "name");
        mc_members_heard(join->members, name != NULL ? name : "");
    }
    json_array_foreach(list, index, item)
    {
        struct mc_member member;
        const char *control = text_in(item, "control");
        bool new = false;
        bool fine = err == SL_OK && member_read(item, &member);
        if (fine && control == NULL) {
            fine = control_of(master, json_integer_value(json_object_get(item, "port")),
                              member.control);
        } else if (fine) {
            fine = strlen(control) < sizeof member.control;
            (void)snprintf(member.control, sizeof member.control, "%.128s", control);
        }
        err = fine           ? mc_members_add(join->members, &member, &new, why)
              : err == SL_OK ? sl_fail(why, SL_ERR_PROTOCOL, "a node without name, key or address")
                             : err;
        *changed = *changed || new;
    }
    json_decref(list);
    return err;
}

sl_err mc_join_ask(const struct mc_join *join, char local_ip[64], bool *changed,
                   struct sl_error *why)
{
    char theirs[HEX_BYTES], ours[HEX_BYTES];
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
    uint64_t deadline_ns = sl_clock_monotonic_ns() + join->timeout_ns;
    json_t *line = NULL;
    int fd = -1;
    *changed = false;
    local_ip[0] = '\0';
    sl_err err = connect_to(join, deadline_ns, &fd, why);
    if (err != SL_OK) {
        return err;
    }
    if (getsockname(fd, (struct sockaddr *)&here, &here_bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_bytes) != 0 || !ip_of(&here, local_ip)) {
        err = sl_fail(why, SL_ERR_UNREACHABLE, "the connection ended: %s", strerror(errno));
    }
    err = err == SL_OK ? greeting_take(fd, deadline_ns, theirs, why) : err;
    err = err == SL_OK ? challenge_make(ours, why) : err;
    err = err == SL_OK ? join_say(fd, join, theirs, ours, deadline_ns, why) : err;
    err = err == SL_OK ? line_take(fd, deadline_ns, &line, why) : err;
    err = err == SL_OK ? nodes_take(join, line, ours, &there, changed, why) : err;
    json_decref(line);
    (void)close(fd);
    return err;
}
