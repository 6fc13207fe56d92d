/* runtime/keys/keys_prompt.c - see keys_prompt.h. */
#include "runtime/keys/keys_prompt.h"
#include "runtime/sl_array.h"
#include "runtime/sl_parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 24u /* digits of a token and more */

sl_err keys_json_failed(struct sl_error *why, const char *what, const json_error_t *error)
{
    return sl_fail(why, SL_ERR_INVALID, "%s: not JSON: %s (line %d, column %d)", what, error->text,
                   error->line, error->column);
}

static sl_err token_add(struct sl_keys_prompt *prompt, uint64_t value, struct sl_error *why)
{
    if (!SL_ARRAY_ROOM(prompt->tokens, prompt->token_room, prompt->token_count + 1)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "tokens: no memory for %" PRIu64,
                       prompt->token_count + 1);
    }
    prompt->tokens[prompt->token_count++] = (uint32_t)value;
    return SL_OK;
}

static sl_err tokens_take(struct sl_keys_prompt *prompt, const json_t *list, struct sl_error *why)
{
    if (!json_is_array(list)) {
        return sl_fail(why, SL_ERR_INVALID, "tokens: %s", list == NULL ? "missing" : "not a list");
    }
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i);
        json_int_t value = json_integer_value(token);
        bool fine = json_is_integer(token) && value >= 0 && value <= (json_int_t)UINT32_MAX;
        err = fine ? token_add(prompt, (uint64_t)value, why)
                   : sl_fail(why, SL_ERR_INVALID, "tokens: element %zu is not an integer in 0..%u",
                             i, UINT32_MAX);
    }
    return err;
}

/* Text without NUL, or null, or absent. */
static sl_err text_take(json_t *object, const char *name, const char **out, struct sl_error *why)
{
    const json_t *value = json_object_get(object, name);
    *out = NULL;
    if (value == NULL || json_is_null(value)) {
        return SL_OK;
    }
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value)) {
        return sl_fail(why, SL_ERR_INVALID, "%s: not a text without NUL", name);
    }
    *out = json_string_value(value);
    return SL_OK;
}

static sl_err object_take(struct sl_keys_prompt *prompt, json_t *object, struct sl_error *why)
{
    static const char *const known[] = {"tokens", "extras", "seed", "parent"};
    const char *name;
    const json_t *value;
    json_object_foreach(object, name, value)
    {
        size_t i = 0;
        while (i < SL_COUNT(known) && strcmp(name, known[i]) != 0) {
            i++;
        }
        if (i == SL_COUNT(known)) {
            return sl_fail(why, SL_ERR_INVALID,
                           "member '%.40s' is unknown; tokens, extras, seed and parent are known",
                           name);
        }
    }
    sl_err err = tokens_take(prompt, json_object_get(object, "tokens"), why);
    if (err == SL_OK) {
        err = text_take(object, "seed", &prompt->seed, why);
    }
    return err == SL_OK ? text_take(object, "parent", &prompt->parent, why) : err;
}

static void prompt_empty(struct sl_keys_prompt *prompt)
{
    json_decref(prompt->json);
    free(prompt->extras_text);
    *prompt = (struct sl_keys_prompt){.tokens = prompt->tokens, .token_room = prompt->token_room};
}

void keys_prompt_clear(struct sl_keys_prompt *prompt)
{
    prompt_empty(prompt);
    free(prompt->tokens);
    *prompt = (struct sl_keys_prompt){.tokens = NULL};
}

sl_err keys_prompt_json(struct sl_keys_prompt *prompt, const char *what, bool list_too,
                        const char *text, uint64_t length_bytes, struct sl_error *why)
{
    json_error_t error;
    prompt_empty(prompt);
    if (length_bytes > SL_KEYS_LINE_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "%s: longer than %" PRIu64 " bytes", what,
                       SL_KEYS_LINE_BYTES_MAX);
    }
    prompt->json = json_loadb(text, length_bytes, KEYS_JSON_FLAGS | JSON_DECODE_ANY, &error);
    if (prompt->json == NULL) {
        return keys_json_failed(why, what, &error);
    }
    if (list_too && json_is_array(prompt->json)) {
        return tokens_take(prompt, prompt->json, why);
    }
    if (!json_is_object(prompt->json)) {
        return sl_fail(why, SL_ERR_INVALID, "%s: not a JSON object", what);
    }
    return object_take(prompt, prompt->json, why);
}

/* "1 2 3", also with commas. */
static sl_err numbers_take(struct sl_keys_prompt *prompt, const char *text, uint64_t length_bytes,
                           struct sl_error *why)
{
    static const char between[] = " ,\t\r\n";
    sl_err err = SL_OK;
    for (uint64_t at = 0, end; err == SL_OK && at < length_bytes; at = end + 1) {
        char word[WORD_BYTES];
        uint64_t value = 0;
        end = at;
        while (end < length_bytes && memchr(between, text[end], sizeof(between) - 1) == NULL) {
            end++;
        }
        if (end == at) {
            continue;
        }
        (void)snprintf(word, sizeof(word), "%.*s", (int)SL_MIN(end - at, sizeof(word) - 1),
                       &text[at]);
        bool fine = strlen(word) == end - at && /* else it is longer, or holds a NUL */
                    sl_parse_within(word, 0, UINT32_MAX, &value);
        err = fine ? token_add(prompt, value, why)
                   : sl_fail(why, SL_ERR_INVALID, "'%s' is no token", word);
    }
    return err;
}

sl_err sl_keys_prompt_read(const char *text, uint64_t length_bytes, struct sl_keys_prompt **out,
                           struct sl_error *why)
{
    static const char space[] = " \t\r\n";
    uint64_t at = 0;
    struct sl_keys_prompt *prompt = calloc(1, sizeof(*prompt));
    if (prompt == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "a prompt");
    }
    while (at < length_bytes && memchr(space, text[at], sizeof(space) - 1) != NULL) {
        at++;
    }
    bool json = at < length_bytes && (text[at] == '[' || text[at] == '{');
    sl_err err = json ? keys_prompt_json(prompt, "prompt", true, text, length_bytes, why)
                      : numbers_take(prompt, text, length_bytes, why);
    const json_t *extras = json_object_get(prompt->json, "extras");
    if (err == SL_OK && extras != NULL && !json_is_null(extras)) {
        prompt->extras_text = json_dumps(extras, JSON_COMPACT | JSON_ENCODE_ANY);
        err = prompt->extras_text != NULL ? SL_OK
                                          : sl_fail(why, SL_ERR_NO_MEMORY, "extras of a prompt");
    }
    if (err == SL_OK && prompt->token_count == 0) {
        err = sl_fail(why, SL_ERR_INVALID, "no tokens");
    }
    if (err != SL_OK) {
        sl_keys_prompt_destroy(&prompt);
        return err;
    }
    *out = prompt;
    return SL_OK;
}

void sl_keys_prompt_destroy(struct sl_keys_prompt **prompt)
{
    if (*prompt != NULL) {
        keys_prompt_clear(*prompt);
        free(*prompt);
        *prompt = NULL;
    }
}

void sl_keys_prompt_lend(const struct sl_keys_prompt *prompt, struct sl_keys_request *request)
{
    request->tokens = prompt->tokens;
    request->token_count = prompt->token_count;
    request->extras = prompt->extras_text;
    request->seed = prompt->seed;
    request->parent = prompt->parent;
}
