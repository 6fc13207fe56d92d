/* runtime/keys/keys_prompt.h - a prompt as JSON: its tokens, and the other inputs of its keys. */
#ifndef SL_KEYS_PROMPT_H
#define SL_KEYS_PROMPT_H

#include "runtime/keys/sl_keys.h"

#include <jansson.h>

#define KEYS_JSON_FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL)

/* Begins as zeros; can be filled repeatedly. */
struct sl_keys_prompt {
    uint32_t *tokens;
    uint64_t token_count, token_room;
    json_t *json;              /* seed and parent point into it; NULL: none */
    const char *seed, *parent; /* NULL: none */
};
/* Parses one JSON object. */
sl_err keys_prompt_json(struct sl_keys_prompt *prompt, const char *line, uint64_t length_bytes,
                        struct sl_error *why);
/* Frees its memory. */
void keys_prompt_clear(struct sl_keys_prompt *prompt);
/* Returns SL_ERR_INVALID with the text that `what` is not JSON, and where. */
sl_err keys_json_failed(struct sl_error *why, const char *what, const json_error_t *error);

#endif
