/* client/ctl/explain_tokens.c - sluicectl explain --tokens: which blocks of a prompt are here. */
#include "client/ctl/explain.h"
#include "runtime/keys/sl_keys.h"
#include "runtime/sl_parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX SL_KEYS_LINE_BYTES_MAX
#define MODEL_BYTES    33u

/* How keys are made, of one identity. */
struct making {
    const char *format, *seed;
    uint32_t block_tokens;
};

/* ---- the file ---- */

static char *file_read(const char *path, size_t *length, struct sl_error *why)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "re");
    char *text = NULL;
    size_t room = 0;
    *length = 0;
    if (file == NULL) {
        (void)sl_fail_os(why, errno, "%s", path);
        return NULL;
    }
    for (size_t got = 1; got > 0 && *length <= FILE_BYTES_MAX;) {
        if (room - *length < 2) {
            char *grown = realloc(text, room = room == 0 ? 65536 : 2 * room);
            if (grown == NULL) {
                break;
            }
            text = grown;
        }
        got = fread(text + *length, 1, room - *length - 1, file);
        *length += got;
    }
    bool fine = text != NULL && feof(file) != 0 && *length <= FILE_BYTES_MAX;
    if (!standard) {
        (void)fclose(file);
    }
    if (!fine) {
        (void)sl_fail(why, SL_ERR_INVALID, "%s: it cannot be read, or has over %" PRIu64 " bytes",
                      path, (uint64_t)FILE_BYTES_MAX);
        free(text);
        return NULL;
    }
    text[*length] = '\0';
    return text;
}

static sl_err prompt_read(const char *path, struct sl_keys_prompt **prompt, struct sl_error *why)
{
    size_t length;
    SL_AUTO(free) char *text = file_read(path, &length, why);
    return text == NULL ? why->code : sl_keys_prompt_read(text, length, prompt, why);
}

/* ---- keys ---- */

struct keys {
    char (*texts)[MODEL_BYTES + 1 + SL_KEYS_KEY_BYTES_MAX];
    uint64_t count, room;
    const char *model;
};

static sl_err key_add(void *context, uint64_t block, const char *text, uint32_t length)
{
    struct keys *keys = context;
    (void)block;
    if (keys->count == keys->room) {
        return SL_ERR_LIMIT;
    }
    (void)snprintf(keys->texts[keys->count++], sizeof keys->texts[0], "%s/%.*s", keys->model,
                   (int)length, text);
    return SL_OK;
}

static struct making making_of(const json_t *identity, const struct explain_tokens *what,
                               const struct sl_keys_request *prompt)
{
    uint64_t block_tokens = 0;
    (void)sl_parse_within(identity_fact(identity, "block_tokens"), 1, SL_KEYS_BLOCK_TOKENS_MAX,
                          &block_tokens);
    return (struct making){
        .format = what->format != NULL ? what->format : identity_fact(identity, "key_format"),
        .seed = what->seed != NULL     ? what->seed
                : prompt->seed != NULL ? prompt->seed
                                       : identity_fact(identity, "seed"),
        .block_tokens = (uint32_t)(what->block_tokens != 0 ? what->block_tokens : block_tokens)};
}

static sl_err keys_make(struct keys *keys, const struct making *making,
                        const struct sl_keys_request *prompt, struct sl_error *why)
{
    struct sl_keys *maker = NULL;
    struct sl_keys_request request = *prompt;
    request.format = making->format;
    request.seed = making->seed;
    request.block_tokens = making->block_tokens;
    sl_err err = sl_keys_count(&request, &keys->room, why);
    if (err == SL_OK && keys->room == 0) {
        err = sl_fail(why, SL_ERR_INVALID, "%" PRIu64 " tokens make no whole block of %u",
                      prompt->token_count, making->block_tokens);
    }
    keys->texts = err == SL_OK ? calloc(keys->room + 1, sizeof *keys->texts) : NULL;
    if (err == SL_OK && keys->texts == NULL) {
        err = sl_fail(why, SL_ERR_NO_MEMORY, "%" PRIu64 " keys", keys->room);
    }
    err = err == SL_OK ? sl_keys_create(&maker, why) : err;
    err = err == SL_OK ? sl_keys_derive(maker, &request, key_add, keys, why) : err;
    sl_keys_destroy(&maker);
    return err;
}

/* ---- which model ---- */

static bool model_fits(const json_t *identity, const char *model)
{
    const char *hex = identity_fact(identity, "identity");
    return model == NULL || strncmp(hex, model, strlen(model)) == 0 ||
           strcmp(identity_fact(identity, "name"), model) == 0;
}

/* The one that is meant; borrowed from identities. */
static sl_err model_choose(const json_t *identities, const char *model, const json_t **out,
                           struct sl_error *why)
{
    char known[400] = "";
    size_t fitting = 0, i;
    const json_t *one;
    json_array_foreach(identities, i, one)
    {
        size_t length = strlen(known);
        if (model_fits(one, model)) {
            *out = one;
            fitting++;
            (void)snprintf(known + length, sizeof known - length, "%s%.8s (%.60s, %.20s)",
                           length > 0 ? ", " : "", identity_fact(one, "identity"),
                           identity_fact(one, "name"), identity_fact(one, "dtype"));
        }
    }
    if (fitting == 1) {
        return SL_OK;
    }
    return fitting == 0
               ? sl_fail(why, SL_ERR_NOT_FOUND,
                         "no engine of this node has registered %s: 32 digits of a model identity, "
                         "--format and --block-tokens do without",
                         model == NULL ? "a model yet" : "such a model")
               : sl_fail(why, SL_ERR_INVALID, "--model is needed, one of %s", known);
}

/* ---- elsewhere ---- */

struct seek {
    const struct explain_tokens *what;
    const struct sl_keys_request *prompt;
    uint64_t token; /* that the block is to have */
};

static bool block_there(void *context, const json_t *there, char *key, size_t room)
{
    const struct seek *seek = context;
    struct sl_error why;
    /* Given on the command line, it is how this engine makes keys, and holds for others alike. */
    struct making making = making_of(there, seek->what, seek->prompt);
    struct keys keys = {.model = ""};
    bool fine = making.block_tokens > 0 && sl_keys_format_check(making.format, &why) == SL_OK &&
                keys_make(&keys, &making, seek->prompt, &why) == SL_OK;
    uint64_t block = fine ? seek->token / making.block_tokens : 0;
    fine = fine && block < keys.count;
    if (fine) {
        (void)snprintf(key, room, "%s", &keys.texts[block][1]); /* behind the slash */
    }
    free(keys.texts);
    return fine;
}

/* ---- output ---- */

static json_t *tokens_json(const struct keys *keys, const json_t *identity,
                           const struct sl_story *stories, uint64_t prefix, const char *elsewhere)
{
    json_t *rows = json_array();
    for (uint64_t i = 0; i < keys->count; i++) {
        (void)json_array_append_new(rows, explain_json(ctl_key(keys->texts[i]), &stories[i]));
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:o}", "model", keys->model, "name",
                     identity_fact(identity, "name"), "prefix", ctl_json_u64(prefix), "blocks",
                     rows, "elsewhere",
                     elsewhere[0] == '\0' ? json_null() : ctl_json_text(elsewhere));
}

static sl_err tokens_look(struct ctl *ctl, const struct explain_tokens *what,
                          const struct sl_keys_request *prompt, const json_t *identities, int *code,
                          struct sl_error *why)
{
    const json_t *identity = NULL;
    char elsewhere[1024] = "";
    bool given = what->model != NULL && strlen(what->model) == MODEL_BYTES - 1 &&
                 what->format != NULL && what->block_tokens != 0;
    struct sl_error unknown;
    sl_err err = model_choose(identities, what->model, &identity, given ? &unknown : why);
    if (err != SL_OK && !given) {
        return err;
    }
    struct making making = making_of(identity, what, prompt);
    struct keys keys = {.model = err == SL_OK ? identity_fact(identity, "identity") : what->model};
    struct sl_client *client = NULL;
    struct sl_story *stories = NULL;
    struct sl_object_key *objects = NULL;
    uint64_t prefix = 0;
    err = keys_make(&keys, &making, prompt, why);
    if (err == SL_OK) {
        stories = calloc(keys.count + 1, sizeof *stories);
        objects = calloc(keys.count + 1, sizeof *objects);
    }
    if (err == SL_OK && (stories == NULL || objects == NULL)) {
        (void)sl_fail(why, SL_ERR_NO_MEMORY, "%" PRIu64 " keys", keys.count);
        err = SL_ERR_NO_MEMORY;
    }
    err = err == SL_OK ? ctl_open(ctl, false, &client, why) : err;
    if (err == SL_OK) {
        for (uint64_t i = 0; i < keys.count; i++) {
            objects[i] = ctl_key(keys.texts[i]);
        }
        err = explain_keys(client, objects, (uint32_t)keys.count, stories, why);
    }
    while (err == SL_OK && prefix < keys.count && stories[prefix].code == SL_OK) {
        prefix++;
    }
    if (err == SL_OK && prefix < keys.count) {
        struct seek seek = {.what = what, .prompt = prompt, .token = prefix * making.block_tokens};
        err = identities_seek(client, identities, keys.model, block_there, &seek, elsewhere,
                              sizeof elsewhere, why);
    }
    if (err == SL_OK) {
        *code = ctl_answer(ctl, tokens_json(&keys, identity, stories, prefix, elsewhere));
        *code = *code == CTL_FINE && prefix < keys.count ? CTL_NO : *code;
    }
    sl_client_close(&client);
    free(stories);
    free(objects);
    free(keys.texts);
    return err;
}

int explain_tokens(struct ctl *ctl, const struct explain_tokens *what)
{
    struct sl_error why = {0};
    struct sl_keys_prompt *text = NULL;
    struct sl_keys_request prompt = {.tokens = NULL}; /* what the text gives of one */
    int code = CTL_NO;
    if (what->block_tokens > SL_KEYS_BLOCK_TOKENS_MAX) {
        return ctl_wrong(ctl, "--block-tokens is %u at most", SL_KEYS_BLOCK_TOKENS_MAX);
    }
    sl_err err = what->format != NULL ? sl_keys_format_check(what->format, &why) : SL_OK;
    if (err == SL_OK) {
        err = prompt_read(what->path, &text, &why);
    }
    if (err == SL_OK) {
        sl_keys_prompt_lend(text, &prompt);
    }
    json_t *identities = identities_read(ctl);
    if (err == SL_OK) {
        err = tokens_look(ctl, what, &prompt, identities, &code, &why);
    }
    json_decref(identities);
    sl_keys_prompt_destroy(&text);
    return err != SL_OK ? ctl_failed(ctl, &why) : code;
}
