/* client/tools/ctl/object.c - sluicectl put, get, exists, rm and flush. */
#include "client/tools/ctl/commands.h"
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_value.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define READ_STEP_BYTES  (64 * SL_KIB)
#define FLUSH_NS_DEFAULT (60 * SL_NS_PER_S)
#define KEYS_MAX         65536
#define GET_TRIES_MAX    8u

static bool is_standard(const struct ctl *ctl, int word)
{
    return ctl->word_count <= word || strcmp(ctl->words[word], "-") == 0;
}

/* Reads the rest of a file, up to the largest value. Gives *out. */
static sl_err read_all(FILE *in, const char *name, unsigned char **out, uint64_t *length_bytes,
                       struct sl_error *why)
{
    unsigned char *bytes = NULL;
    uint64_t room = 0;
    uint64_t length = 0;
    struct stat about;
    off_t at = ftello(in); /* another program may have read a part of standard input */
    if (at >= 0 && fstat(fileno(in), &about) == 0 && S_ISREG(about.st_mode) && about.st_size > at) {
        sl_err err = sl_value_check((uint64_t)(about.st_size - at), SL_VALUE_BYTES_MAX, why);
        if (err != SL_OK) {
            return err; /* without reading it first */
        }
    }
    for (;;) {
        if (length == room) {
            if (room > SL_VALUE_BYTES_MAX) {
                free(bytes);
                return sl_fail(why, SL_ERR_INVALID,
                               "%s: a value has at most %" PRIu64
                               " bytes (1 GiB): " SL_VALUE_IN_PARTS,
                               name, SL_VALUE_BYTES_MAX);
            }
            uint64_t wanted = SL_MIN(SL_MAX(READ_STEP_BYTES, room * 2), SL_VALUE_BYTES_MAX + 1);
            if (!SL_ARRAY_ROOM(bytes, room, wanted)) {
                free(bytes);
                return sl_fail(why, SL_ERR_NO_MEMORY, "%s: %" PRIu64 " bytes", name, wanted);
            }
        }
        size_t got = fread(&bytes[length], 1, room - length, in);
        length += got;
        if (got == 0) {
            break;
        }
    }
    if (ferror(in) != 0) {
        int code = errno;
        free(bytes);
        return sl_fail_os(why, code, "read %s", name);
    }
    *out = bytes;
    *length_bytes = length;
    return SL_OK;
}

static sl_err read_source(const struct ctl *ctl, unsigned char **out, uint64_t *length_bytes,
                          struct sl_error *why)
{
    if (is_standard(ctl, 1)) {
        return read_all(stdin, "standard input", out, length_bytes, why);
    }
    SL_AUTO(fclose) FILE *in = fopen(ctl->words[1], "rb");
    if (in == NULL) {
        return sl_fail_os(why, errno, "open '%s'", ctl->words[1]);
    }
    return read_all(in, ctl->words[1], out, length_bytes, why);
}

static int put_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    struct sl_client *client = NULL;
    unsigned char *value = NULL;
    uint64_t length_bytes = 0;
    sl_err err = ctl_open(ctl, false, &client, &why);
    if (err == SL_OK) {
        err = read_source(ctl, &value, &length_bytes, &why);
    }
    if (err == SL_OK) {
        err = sl_put(client, ctl_key(ctl->words[0]), value, length_bytes, 0, &why);
    }
    sl_client_close(&client);
    free(value);
    if (err != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    if (ctl->json) {
        ctl_print_json(json_pack("{s:o, s:o}", "key",
                                 ctl_json_bytes(ctl->words[0], strlen(ctl->words[0])), "bytes",
                                 ctl_json_u64(length_bytes)));
    }
    return CTL_SUCCESS;
}

/* clang-format off */
const struct ctl_command ctl_put = {
    .name = "put",
    .summary = "store one object",
    .help = "put KEY [FILE|-]\n"
            "\n"
            "Stores FILE (or standard input) under KEY. If the key exists, nothing changes and the command succeeds.\n"
            "A value has 1 byte to 1 GiB. Store a larger one in parts, each under its own key.\n"
            CTL_HELP_COMMON,
    .run = put_command,
    .words_min = 1,
    .words_max = 2,
    .words = "one key and at most one file",
};
/* clang-format on */

/* Fetches a value whose size may change between the query and the copy. Gives *out. */
static sl_err fetch(struct sl_client *client, struct sl_object_key key, bool elsewhere,
                    unsigned char **out, uint64_t *length_bytes, struct sl_error *why)
{
    uint64_t size = 0;
    sl_err err = sl_size(client, key, &size);
    if (err == SL_ERR_NOT_FOUND && elsewhere) {
        size = 1; /* a get asks other nodes and reports the length of the value */
    } else if (err != SL_OK) {
        return sl_fail(why, err, "get: %s", sl_err_text(err));
    }
    for (uint32_t tries = 0; tries < GET_TRIES_MAX; tries++) {
        unsigned char *bytes = malloc(size);
        if (bytes == NULL) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "get: %" PRIu64 " bytes", size);
        }
        err = sl_get(client, key, (struct sl_buffer){.at = bytes, .length_bytes = size},
                     length_bytes, 0, why);
        if (err == SL_OK) {
            *out = bytes;
            return SL_OK;
        }
        free(bytes);
        if (err != SL_ERR_LIMIT || *length_bytes <= size) {
            break;
        }
        size = *length_bytes;
    }
    return err;
}

static sl_err write_target(const struct ctl *ctl, const unsigned char *value, uint64_t length_bytes,
                           struct sl_error *why)
{
    if (is_standard(ctl, 1)) {
        (void)fwrite(value, 1, length_bytes, stdout); /* main() reports a failed write */
        return SL_OK;
    }
    FILE *out = fopen(ctl->words[1], "wb");
    if (out == NULL) {
        return sl_fail_os(why, errno, "open '%s'", ctl->words[1]);
    }
    bool whole = fwrite(value, 1, length_bytes, out) == length_bytes && fflush(out) == 0;
    int code = errno;
    whole = fclose(out) == 0 && whole;
    return whole ? SL_OK : sl_fail_os(why, code, "write '%s'", ctl->words[1]);
}

static int get_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    struct sl_client *client = NULL;
    unsigned char *value = NULL;
    uint64_t length_bytes = 0;
    struct sl_object_key key = ctl_key(ctl->words[0]);
    /* A value in memory needs no actor. One that is only on disk or on another node does. */
    sl_err err = ctl_open(ctl, true, &client, &why);
    if (err == SL_OK) {
        err = fetch(client, key, false, &value, &length_bytes, &why);
        sl_client_close(&client);
    }
    if (err == SL_ERR_PERMISSION || err == SL_ERR_BUSY || err == SL_ERR_NOT_FOUND) {
        struct sl_error closed;
        sl_err opened = ctl_open(ctl, false, &client, &closed);
        if (opened == SL_OK) {
            err = fetch(client, key, true, &value, &length_bytes, &why);
        } else if (err != SL_ERR_NOT_FOUND) { /* a miss remains a miss */
            err = opened;
            why = closed;
        }
    }
    sl_client_close(&client);
    if (err == SL_OK) {
        err = write_target(ctl, value, length_bytes, &why);
    }
    free(value);
    return err == SL_OK ? CTL_SUCCESS : ctl_failed(ctl, &why);
}

/* clang-format off */
const struct ctl_command ctl_get = {
    .name = "get",
    .summary = "fetch one object",
    .help = "get KEY [FILE|-]\n"
            "\n"
            "Writes the value to FILE (or standard output). Values in memory are read directly, without an actor.\n"
            CTL_HELP_COMMON,
    .run = get_command,
    .words_min = 1,
    .words_max = 2,
    .words = "one key and at most one file",
};
/* clang-format on */

/* Looks up a key here, then with everywhere at other nodes. *where names the node that has it. */
static sl_err exists_at(struct sl_client *client, struct sl_object_key key, bool everywhere,
                        struct sl_remote_info *where, struct sl_error *why)
{
    sl_err err = sl_exists(client, key);
    *where = (struct sl_remote_info){0};
    if (err != SL_ERR_NOT_FOUND || !everywhere) {
        return err;
    }
    sl_err code = SL_ERR_NOT_FOUND;
    err = sl_remote_lookup_batch(client, &key, 1, where, &code, 0, why);
    return err != SL_OK ? err : code;
}

static int exists_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    bool everywhere = false;
    struct sl_error why = {0};
    const struct ctl_option options[] = {{.name = "everywhere", .flag = &everywhere}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    struct sl_client *client = NULL;
    if (ctl_open(ctl, !everywhere, &client, &why) != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    json_t *answers = json_object();
    bool all = true;
    for (int i = 0; i < ctl->word_count; i++) {
        struct sl_remote_info where;
        sl_err err = exists_at(client, ctl_key(ctl->words[i]), everywhere, &where, &why);
        all = all && err == SL_OK;
        if (ctl->json) {
            (void)json_object_set_new(answers, ctl->words[i], json_boolean(err == SL_OK));
        } else {
            (void)printf("%s\t", err == SL_OK              ? "yes"
                                 : err == SL_ERR_NOT_FOUND ? "no"
                                                           : sl_err_text(err));
            ctl_print_bytes(stdout, ctl->words[i], strlen(ctl->words[i]));
            (void)printf(where.node[0] != '\0' ? "\tat %s\n" : "\n", where.node);
        }
    }
    sl_client_close(&client);
    if (ctl->json) {
        ctl_print_json(json_pack("{s:o, s:b}", "exists", answers, "all", all));
    } else {
        json_decref(answers);
    }
    return all ? CTL_SUCCESS : CTL_NO;
}

/* clang-format off */
const struct ctl_command ctl_exists = {
    .name = "exists",
    .summary = "check whether objects exist",
    .help = "exists KEY... [--everywhere]\n"
            "\n"
            "Prints one line for each key. Exit code 0: all exist. Reads only shared memory.\n"
            "\n"
            "  --everywhere      ask other nodes for keys that are not here"
            CTL_HELP_COMMON,
    .run = exists_command,
    .words_min = 1,
    .words_max = INT_MAX,
    .words = "at least one key",
};
/* clang-format on */

/* Prints a failure, and for an unavailable disk also what the user has to do next. */
static int disk_away(const struct ctl *ctl, const struct sl_error *why, const char *next)
{
    int code = ctl_failed(ctl, why);
    if (why->code == SL_ERR_DISK_AWAY) {
        (void)fprintf(stderr, "sluicectl %s: `sluicectl tiers` names the disk and the reason; %s\n",
                      ctl->command->name, next);
    }
    return code;
}

static int rm_report(struct ctl *ctl, const sl_err *codes, uint32_t count)
{
    uint32_t removed = 0;
    for (uint32_t i = 0; i < count; i++) {
        removed += codes[i] == SL_OK;
        if (codes[i] != SL_OK) {
            (void)fprintf(stderr, "sluicectl rm: '");
            ctl_print_bytes(stderr, ctl->words[i], strlen(ctl->words[i]));
            (void)fprintf(
                stderr, "': %s\n",
                codes[i] == SL_ERR_DISK_AWAY
                    ? "removed from memory; its disk is unavailable, and removes it when it is "
                      "back: no need to repeat the command (sluicectl tiers names the disk)"
                : codes[i] == SL_ERR_NO_SPACE
                    ? "no space to record the removal: the file system of its disk is full "
                      "(sluicectl tiers names it), or the index is: repeat when there is space"
                    : sl_err_text(codes[i]));
        }
    }
    if (ctl->json) {
        ctl_print_json(json_pack("{s:I, s:I}", "removed", (json_int_t)removed, "requested",
                                 (json_int_t)count));
    }
    return removed == count ? CTL_SUCCESS : CTL_NO;
}

/* Combines the codes: a key that was removed here or elsewhere is removed; else the code is that of
 * the node that kept it. */
static sl_err rm_remote(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                        sl_err *codes, struct sl_error *why)
{
    sl_err *theirs = calloc(count, sizeof *theirs);
    if (theirs == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "rm: %u keys", count);
    }
    sl_err err = sl_remote_remove_batch(client, keys, count, false, theirs, 0, why);
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        bool ours_decides =
            theirs[i] == SL_ERR_NOT_FOUND || (theirs[i] == SL_OK && codes[i] != SL_ERR_NOT_FOUND);
        codes[i] = ours_decides ? codes[i] : theirs[i];
    }
    free(theirs);
    return err;
}

static int rm_keys(struct ctl *ctl, struct sl_client *client, bool everywhere)
{
    struct sl_error why = {0};
    uint32_t count = (uint32_t)ctl->word_count;
    SL_AUTO(free) struct sl_object_key *keys = NULL;
    SL_AUTO(free) sl_err *codes = NULL;
    sl_err err = ctl_word_keys(ctl, &keys, &codes, &why);
    err = err == SL_OK ? sl_remove_batch(client, keys, count, NULL, codes, 0, &why) : err;
    if (err == SL_OK && everywhere) {
        err = rm_remote(client, keys, count, codes, &why);
    }
    return err == SL_OK ? rm_report(ctl, codes, count) : ctl_failed(ctl, &why);
}

static int rm_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    bool all = false, everywhere = false;
    struct sl_error why = {0};
    const struct ctl_option options[] = {{.name = "all", .flag = &all},
                                         {.name = "everywhere", .flag = &everywhere}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (all == (ctl->word_count > 0)) {
        return ctl_usage_error(ctl, "expected either keys or --all");
    }
    if (all && everywhere) {
        return ctl_usage_error(
            ctl, "--everywhere needs keys: --all removes only the objects of this node");
    }
    struct sl_client *client = NULL;
    if (ctl_open(ctl, false, &client, &why) != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    if (!all) {
        code = rm_keys(ctl, client, everywhere);
    } else if (sl_remove_all(client, 0, &why) != SL_OK) {
        code = disk_away(ctl, &why, "no need to repeat the command");
    } else {
        code = CTL_SUCCESS;
        if (ctl->json) {
            ctl_print_json(json_pack("{s:b}", "all", 1));
        }
    }
    sl_client_close(&client);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_rm = {
    .name = "rm",
    .summary = "remove objects",
    .help = "rm KEY... [--everywhere] | --all\n"
            "\n"
            "Removes objects permanently. A block key (MODEL/BLOCK) removes all parts of the block.\n"
            "\n"
            "  --everywhere      also remove at other nodes that allow it (setting peer_removes)\n"
            "  --all             remove every object of the node"
            CTL_HELP_COMMON,
    .run = rm_command,
    .words_max = KEYS_MAX,
    .words = "expected either keys or --all",
};
/* clang-format on */

static int flush_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    uint64_t timeout_ns = FLUSH_NS_DEFAULT;
    const struct ctl_option options[] = {{.name = "timeout", .duration = &timeout_ns}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    struct sl_client *client = NULL;
    sl_err err = ctl_open(ctl, false, &client, &why);
    if (err == SL_OK) {
        err = sl_flush(client, timeout_ns, &why);
    }
    sl_client_close(&client);
    if (err != SL_OK) {
        return disk_away(ctl, &why, "make it available and flush again");
    }
    if (ctl->json) {
        ctl_print_json(json_pack("{s:b}", "durable", 1));
    }
    return CTL_SUCCESS;
}

/* clang-format off */
const struct ctl_command ctl_flush = {
    .name = "flush",
    .summary = "wait until all committed values are on disk",
    .help = "flush [--timeout T]\n"
            "\n"
            "Returns when all values that were committed before are durable on disk. Exit code 1: this took longer than T, or the\n"
            "node has no disk.\n"
            "\n"
            "  --timeout T       give up after T (default 60s)"
            CTL_HELP_COMMON,
    .run = flush_command,
};
/* clang-format on */
