/* actors/transporter/peers/file.c - peers that are listed in a file (setting peers_file), so that a
 * cluster manager can add nodes without a restart.
 *
 * Each line is NAME@IP:PORT; empty lines and those that begin with # are ignored. As everywhere,
 * the key files decide which nodes are connected. Removing a line ends nothing: its peer stays.
 * Lines without a key or a usable address are tried again. */
#include "actors/transporter/peers/peers.h"
#include "runtime/base/sl_trust.h"

#include <string.h>

#define LOOK_NS        SL_NS_PER_S
#define FILE_BYTES_MAX 16384u

/* Handles a line. Gives whether it is done: its peer is asked, or the line has no effect. first:
 * log errors, because this content is new. */
static bool line_take(struct transporter *self, const char *at, size_t length, bool first)
{
    struct sl_directory_member member = {0};
    const char *sign = memchr(at, '@', length);
    if (length == 0 || at[0] == '#') {
        return true;
    }
    if (sign == NULL || (size_t)(sign - at) >= sizeof(member.name) ||
        length - (size_t)(sign - at) > sizeof(member.control)) {
        if (first) {
            sl_log_write(self->env->log, SL_LOG_WARN, 0, "peers_file: '%.*s' is not NAME@IP:PORT",
                         (int)SL_MIN(length, (size_t)80), at);
        }
        return true;
    }
    memcpy(member.name, at, (size_t)(sign - at));
    memcpy(member.control, sign + 1, length - (size_t)(sign - at) - 1);
    if (strcmp(member.name, self->node) == 0) {
        return true; /* all nodes may share one file */
    }
    struct sl_error no_key = {0};
    if (first && sl_actor_name_is_clean(member.name, strlen(member.name)) &&
        tr_peer_has_key(self, member.name, &no_key) != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "peers_file: node %s is not connected: %s",
                     member.name, no_key.text);
    }
    const struct tr_peer *peer = tr_member_take(self, &member);
    return peer != NULL && peer->address[0] != '\0';
}

uint64_t tr_peers_file_step(struct transporter *self, uint64_t now_ns)
{
    const char *path = sl_config_text(self->env->config, SL_SET_peers_file);
    char text[FILE_BYTES_MAX + 1];
    size_t length = 0;
    if (path[0] == '\0') {
        return SL_NEVER_NS;
    }
    if (now_ns < self->peers_file_due_ns) {
        return self->peers_file_due_ns;
    }
    self->peers_file_due_ns = now_ns + LOOK_NS;
    struct sl_error why = {0};
    sl_err err = sl_trust_read(path, SL_TRUST_RIGHT, false, text, sizeof(text), &why);
    if (err != SL_OK && err != SL_ERR_NOT_FOUND && !self->peers_file_refused) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "peers_file is ignored: %s", why.text);
    }
    self->peers_file_refused = err != SL_OK && err != SL_ERR_NOT_FOUND;
    if (err != SL_OK) {
        return self->peers_file_due_ns;
    }
    length = strlen(text);
    uint64_t digest = sl_digest_of(text, length).low | 1;
    bool whole = true;
    for (size_t at = 0; digest != self->peers_file_digest && at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end != NULL ? (size_t)(end - text) - at : length - at;
        whole = line_take(self, text + at, line, digest != self->peers_file_seen) && whole;
        at += line + 1;
    }
    self->peers_file_seen = digest;
    self->peers_file_digest = whole ? digest : 0;
    return self->peers_file_due_ns;
}
