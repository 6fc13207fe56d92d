/* client/ctl/identities.c - what model identities are made of: the file that the registrar keeps beside the
 * logs, and whether a block is here under another one. */
#include "client/ctl/explain.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX (64 * 1024u)
#define IDENTITIES_MAX 1024u
#define IDENTITY_BYTES 32u

json_t *identities_read(const struct ctl *ctl)
{
    char path[1100];
    json_t *all = json_array();
    (void)snprintf(path, sizeof path, "%s/identities.jsonl", ctl->paths.log_dir);
    SL_AUTO(fclose) FILE *file = fopen(path, "re");
    char *line = file == NULL ? NULL : malloc(LINE_BYTES_MAX);
    while (line != NULL && fgets(line, LINE_BYTES_MAX, file) != NULL) {
        json_t *one = json_loads(line, 0, NULL); /* a line that was cut by a kill is none */
        if (strlen(identity_fact(one, "identity")) == IDENTITY_BYTES) {
            (void)json_array_append(all, one);
        }
        if (json_array_size(all) > IDENTITIES_MAX) { /* the youngest stay */
            (void)json_array_remove(all, 0);
        }
        json_decref(one);
    }
    free(line);
    return all;
}

const char *identity_fact(const json_t *identity, const char *name)
{
    const char *text = json_string_value(json_object_get(identity, name));
    return text == NULL ? "" : text;
}

static void differ_add(const json_t *here, const json_t *there, const char *name, char *out,
                       size_t room)
{
    const char *a = identity_fact(here, name), *b = identity_fact(there, name);
    size_t length = strlen(out);
    if (strcmp(name, "identity") != 0 && strcmp(a, b) != 0) {
        (void)snprintf(out + length, room - length, "%s%s \"%s\" here, \"%s\" there",
                       length > 0 ? "; " : "", name, a, b);
    }
}

void identities_differ(const json_t *here, const json_t *there, char *out, size_t room)
{
    const char *name;
    json_t *value;
    out[0] = '\0';
    json_object_foreach((json_t *)(uintptr_t)here, name, value)
    {
        differ_add(here, there, name, out, room);
    }
    json_object_foreach((json_t *)(uintptr_t)there, name, value)
    {
        if (json_object_get(here, name) == NULL) {
            differ_add(here, there, name, out, room);
        }
    }
}

sl_err identities_seek(struct sl_client *client, const json_t *identities, const char *identity,
                       bool (*block_of)(void *context, const json_t *there, char *key, size_t room),
                       void *context, char *text, size_t room, struct sl_error *why)
{
    const json_t *here = NULL;
    size_t i;
    const json_t *one;
    text[0] = '\0';
    json_array_foreach(identities, i, one)
    {
        here = strcmp(identity_fact(one, "identity"), identity) == 0 ? one : here;
    }
    json_array_foreach(identities, i, one)
    {
        char key[1100];
        struct sl_story story;
        const char *there = identity_fact(one, "identity");
        int length = snprintf(key, sizeof key, "%s/", there);
        if (one == here || strcmp(there, identity) == 0 ||
            !block_of(context, one, key + length, sizeof key - (size_t)length)) {
            continue;
        }
        const struct sl_object_key block = ctl_key(key);
        sl_err err = explain_keys(client, &block, 1, &story, why);
        if (err != SL_OK) {
            return err;
        }
        if (story.code == SL_OK) {
            char fields[512];
            identities_differ(here, one, fields, sizeof fields);
            (void)snprintf(text, room, "stored under the model identity %s (%s), which differs: %s",
                           there, identity_fact(one, "name"),
                           here == NULL ? "what this one is made of is not known" : fields);
            return SL_OK;
        }
    }
    return SL_OK;
}
