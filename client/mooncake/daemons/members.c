/* client/mooncake/daemons/members.c - see members.h. */
#include "client/mooncake/daemons/members.h"

#include "ipc/sl_cluster.h"
#include "ipc/sl_curve.h"
#include "ipc/sl_msg.h"
#include "runtime/sl_clock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 256u

struct mc_members {
    pthread_mutex_t lock;
    char directory[1024];
    char name[32];
    struct sl_curve_pair keys;
    struct mc_member at[MC_MEMBERS_MAX];
    uint64_t heard_ns[MC_MEMBERS_MAX]; /* of each, when it was last added */
    uint32_t count;
    uint64_t quiet_ns;
};

/* ---- files ---- */

static sl_err path_of(const struct mc_members *members, const char *file, char out[1200],
                      struct sl_error *why)
{
    int length = snprintf(out, 1200, "%s/%s", members->directory, file);
    return length > 0 && length < 1200 ? SL_OK
                                       : sl_fail(why, SL_ERR_INVALID, "the path is too long");
}

sl_err mc_file_put(const char *directory, const char *file, const char *text, struct sl_error *why)
{
    char path[1200], beside[1216];
    int bytes = snprintf(path, sizeof path, "%s/%s", directory, file);
    if (bytes < 0 || (size_t)bytes >= sizeof path) {
        return sl_fail(why, SL_ERR_INVALID, "the path is too long");
    }
    (void)snprintf(beside, sizeof beside, "%s.new", path);
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return sl_fail_os(why, errno, "write %s", beside);
    }
    size_t length = strlen(text), done = 0;
    while (done < length) {
        ssize_t wrote = write(fd, text + done, length - done);
        if (wrote < 0 && errno != EINTR) {
            break;
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    int code = done == length && fsync(fd) == 0 ? 0 : errno;
    if (close(fd) != 0 && code == 0) {
        code = errno;
    }
    if (code == 0 && rename(beside, path) != 0) {
        code = errno;
    }
    if (code != 0) {
        (void)unlink(beside);
        return sl_fail_os(why, code, "write %s", path);
    }
    return sl_dir_sync(directory, why);
}

static sl_err file_put(const struct mc_members *members, const char *file, const char *text,
                       struct sl_error *why)
{
    return mc_file_put(members->directory, file, text, why);
}

/* ---- members ---- */

static bool key_is_z85(const char *key)
{
    static const char others[] = ".-:+=^!/*?&<>()[]{}@%$#";
    size_t length = strlen(key);
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)key[i]) && strchr(others, key[i]) == NULL) {
            return false;
        }
    }
    return length == SL_CURVE_TEXT_BYTES - 1;
}

static sl_err member_check(const struct mc_member *member, struct sl_error *why)
{
    bool any = true;
    if (!sl_actor_name_is_clean(member->name, strlen(member->name))) {
        return sl_fail(why, SL_ERR_INVALID, "'%.40s' is no name of a node", member->name);
    }
    if (!key_is_z85(member->key)) {
        return sl_fail(why, SL_ERR_INVALID, "the key of '%s' is no public key", member->name);
    }
    if (member->control[0] != '\0' && (!sl_cluster_address(member->control, &any) || any)) {
        return sl_fail(why, SL_ERR_INVALID, "'%.80s' is no IP:PORT of '%s'", member->control,
                       member->name);
    }
    return SL_OK;
}

static sl_err peers_put(const struct mc_members *members, struct sl_error *why)
{
    char text[MC_MEMBERS_MAX * LINE_BYTES];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < members->count; i++) {
        const struct mc_member *member = &members->at[i];
        if (member->control[0] != '\0') {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s@%s\n", member->name,
                                     member->control);
        }
    }
    return file_put(members, "peers", text, why);
}

static sl_err key_put(const struct mc_members *members, const struct mc_member *member,
                      struct sl_error *why)
{
    char file[40], text[128];
    (void)snprintf(file, sizeof file, "%s.pub", member->name);
    (void)snprintf(text, sizeof text, "public = %s\n", member->key);
    return file_put(members, file, text, why);
}

static struct mc_member *member_find(struct mc_members *members, const char *name)
{
    for (uint32_t i = 0; i < members->count; i++) {
        if (strcmp(members->at[i].name, name) == 0) {
            return &members->at[i];
        }
    }
    return NULL;
}

/* Drops the one that was not heard of for longest, when that is long enough. */
static sl_err room_make(struct mc_members *members, uint64_t now_ns, struct sl_error *why)
{
    char file[40], path[1200];
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < members->count; i++) {
        oldest = members->heard_ns[i] < members->heard_ns[oldest] ? i : oldest;
    }
    if (now_ns - members->heard_ns[oldest] < members->quiet_ns) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "the cluster has %u nodes, and each was heard of in the last %u s",
                       MC_MEMBERS_MAX + 1, (unsigned)(members->quiet_ns / SL_NS_PER_S));
    }
    (void)snprintf(file, sizeof file, "%s.pub", members->at[oldest].name);
    sl_err err = path_of(members, file, path, why);
    if (err == SL_OK && unlink(path) != 0 && errno != ENOENT) {
        err = sl_fail_os(why, errno, "remove %s", path);
    }
    if (err == SL_OK) {
        members->count--;
        members->at[oldest] = members->at[members->count];
        members->heard_ns[oldest] = members->heard_ns[members->count];
    }
    return err;
}

/* The line of peers first, and then the key: a line without a key is nobody's, a key without a line
 * would stay for ever. What cannot be written was not taken, so that it is tried again. */
static sl_err member_write(struct mc_members *members, struct mc_member *at,
                           const struct mc_member *member, struct sl_error *why)
{
    const struct mc_member before = *at;
    *at = *member;
    if (member->control[0] == '\0') {
        memcpy(at->control, before.control, sizeof at->control);
    }
    sl_err err = peers_put(members, why);
    if (err == SL_OK && strcmp(before.key, member->key) != 0) {
        err = key_put(members, member, why);
    }
    if (err != SL_OK) {
        *at = before;
    }
    return err;
}

static sl_err member_put(struct mc_members *members, const struct mc_member *member, bool *changed,
                         struct sl_error *why)
{
    struct mc_member *known = member_find(members, member->name);
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (known != NULL) {
        members->heard_ns[known - members->at] = now_ns;
        bool same_place =
            member->control[0] == '\0' || strcmp(known->control, member->control) == 0;
        if (same_place && strcmp(known->key, member->key) == 0) {
            return SL_OK;
        }
        sl_err err = member_write(members, known, member, why);
        *changed = err == SL_OK;
        return err;
    }
    sl_err err = members->count == MC_MEMBERS_MAX ? room_make(members, now_ns, why) : SL_OK;
    if (err != SL_OK) {
        return err;
    }
    uint32_t place = members->count++;
    members->at[place] = (struct mc_member){0};
    members->heard_ns[place] = now_ns;
    err = member_write(members, &members->at[place], member, why);
    members->count -= err == SL_OK ? 0 : 1;
    *changed = err == SL_OK;
    return err;
}

sl_err mc_members_add(struct mc_members *members, const struct mc_member *member, bool *changed,
                      struct sl_error *why)
{
    bool new = false;
    sl_err err = member_check(member, why);
    if (err == SL_OK && strcmp(member->name, members->name) != 0) {
        (void)pthread_mutex_lock(&members->lock);
        err = member_put(members, member, &new, why);
        (void)pthread_mutex_unlock(&members->lock);
    }
    if (changed != NULL) {
        *changed = new;
    }
    return err;
}

void mc_members_heard(struct mc_members *members, const char *name)
{
    (void)pthread_mutex_lock(&members->lock);
    const struct mc_member *known = member_find(members, name);
    if (known != NULL) {
        members->heard_ns[known - members->at] = sl_clock_monotonic_ns();
    }
    (void)pthread_mutex_unlock(&members->lock);
}

void mc_members_set_quiet(struct mc_members *members, uint64_t quiet_ns)
{
    (void)pthread_mutex_lock(&members->lock);
    members->quiet_ns = quiet_ns;
    (void)pthread_mutex_unlock(&members->lock);
}

uint32_t mc_members_list(struct mc_members *members, struct mc_member *out)
{
    (void)pthread_mutex_lock(&members->lock);
    uint32_t count = members->count;
    memcpy(out, members->at, count * sizeof *out);
    (void)pthread_mutex_unlock(&members->lock);
    return count;
}

/* ---- this node ---- */

static sl_err name_make(char out[32], struct sl_error *why)
{
    char host[256] = "";
    unsigned char random[3];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return sl_fail_os(why, errno, "getrandom");
    }
    (void)gethostname(host, sizeof host - 1);
    for (char *at = host; *at != '\0'; at++) {
        *at = isalnum((unsigned char)*at) ? *at : '-';
    }
    bool fine = isalnum((unsigned char)host[0]) != 0;
    (void)snprintf(out, 32, "%.24s-%02x%02x%02x", fine ? host : "node", random[0], random[1],
                   random[2]);
    return SL_OK;
}

static sl_err name_load(struct mc_members *members, struct sl_error *why)
{
    char path[1200], text[64];
    sl_err err = path_of(members, "name", path, why);
    if (err != SL_OK) {
        return err;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL && errno != ENOENT) {
        return sl_fail_os(why, errno, "read %s", path);
    }
    if (file != NULL) {
        bool read = fgets(text, sizeof text, file) != NULL;
        (void)fclose(file);
        text[read ? strcspn(text, "\n") : 0] = '\0';
        if (strlen(text) >= sizeof members->name || !sl_actor_name_is_clean(text, strlen(text))) {
            return sl_fail(why, SL_ERR_CORRUPT, "%s holds no name of a node: remove it", path);
        }
        (void)snprintf(members->name, sizeof members->name, "%.31s", text);
        return SL_OK;
    }
    err = name_make(members->name, why);
    return err == SL_OK ? file_put(members, "name", members->name, why) : err;
}

/* What an earlier life knew. A line that is none is passed over: its node joins again. */
static void peers_load(struct mc_members *members)
{
    char path[1200], line[LINE_BYTES];
    FILE *file = path_of(members, "peers", path, NULL) == SL_OK ? fopen(path, "re") : NULL;
    while (file != NULL && members->count < MC_MEMBERS_MAX &&
           fgets(line, sizeof line, file) != NULL) {
        struct mc_member member = {0};
        line[strcspn(line, "\n")] = '\0';
        char *sign = strchr(line, '@');
        if (sign == NULL || strlen(sign + 1) >= sizeof member.control) {
            continue;
        }
        *sign = '\0';
        (void)snprintf(member.name, sizeof member.name, "%.31s", line);
        (void)snprintf(member.control, sizeof member.control, "%.128s", sign + 1);
        if (sl_curve_load_public(members->directory, member.name, member.key, NULL) == SL_OK &&
            member_check(&member, NULL) == SL_OK && member_find(members, member.name) == NULL) {
            members->heard_ns[members->count] = sl_clock_monotonic_ns();
            members->at[members->count++] = member;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

sl_err mc_members_open(const char *directory, struct mc_members **out, struct sl_error *why)
{
    struct mc_members *members = calloc(1, sizeof *members);
    if (members == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "the table of nodes");
    }
    (void)pthread_mutex_init(&members->lock, NULL);
    members->quiet_ns = SL_NEVER_NS;
    sl_err err = strlen(directory) < sizeof members->directory
                     ? sl_dir_make(directory, why)
                     : sl_fail(why, SL_ERR_INVALID, "the path is too long");
    if (err == SL_OK) {
        (void)snprintf(members->directory, sizeof members->directory, "%s", directory);
        err = name_load(members, why);
    }
    if (err == SL_OK) {
        err = sl_curve_make(directory, members->name, why);
        err = err == SL_ERR_EXISTS ? SL_OK : err;
    }
    if (err == SL_OK) {
        err = sl_curve_load(directory, members->name, &members->keys, why);
    }
    if (err == SL_OK) {
        peers_load(members);
        err = peers_put(members, why);
    }
    if (err != SL_OK) {
        mc_members_close(&members);
        return err;
    }
    *out = members;
    return SL_OK;
}

void mc_members_close(struct mc_members **members)
{
    if (*members != NULL) {
        (void)pthread_mutex_destroy(&(*members)->lock);
        explicit_bzero(&(*members)->keys, sizeof(*members)->keys);
        free(*members);
        *members = NULL;
    }
}

const char *mc_members_name(const struct mc_members *members)
{
    return members->name;
}

const char *mc_members_key(const struct mc_members *members)
{
    return members->keys.public_text;
}

const char *mc_members_directory(const struct mc_members *members)
{
    return members->directory;
}
