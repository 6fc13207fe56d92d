/* runtime/base/sl_arguments.c - the command-line parser. */
#include "runtime/base/sl_arguments.h"

#include <string.h>

/* Number of leading dashes of an option; 0: the word is not an option. */
static size_t dashes_of(const struct sl_arguments *walk, const char *word)
{
    size_t dashes = strspn(word, "-");
    if (walk->words_only || strcmp(word, "-") == 0) {
        return 0;
    }
    if (walk->dash == SL_DASH_OPTION) {
        return dashes > 2 || word[dashes] == '\0' ? 0 : dashes;
    }
    return dashes >= 2 ? 2 : walk->dash == SL_DASH_UNKNOWN ? dashes : 0;
}

enum sl_argument_kind sl_arguments_next(struct sl_arguments *walk, struct sl_argument *out)
{
    if (walk->at < walk->argc && !walk->words_only && walk->dash != SL_DASH_OPTION &&
        strcmp(walk->argv[walk->at], "--") == 0) {
        walk->words_only = true;
        walk->at++;
    }
    if (walk->at >= walk->argc) {
        return SL_ARGUMENT_END;
    }
    const char *word = walk->argv[walk->at++];
    *out = (struct sl_argument){.word = word};
    size_t dashes = dashes_of(walk, word);
    if (dashes == 0) {
        return SL_ARGUMENT_WORD;
    }
    out->name = word + dashes;
    size_t length = strcspn(out->name, "=");
    out->name_length = (int)length;
    out->value = out->name[length] == '=' ? out->name + length + 1 : NULL;
    enum sl_option_takes takes = dashes == 1 && walk->dash == SL_DASH_UNKNOWN
                                     ? SL_OPTION_UNKNOWN
                                     : walk->find(walk->table, out->name, length, &out->option);
    if (takes == SL_OPTION_UNKNOWN) {
        return SL_ARGUMENT_UNKNOWN;
    }
    if (takes == SL_OPTION_NOTHING && out->value != NULL) {
        return SL_ARGUMENT_UNWANTED;
    }
    if (takes == SL_OPTION_VALUE && out->value == NULL) {
        if (walk->at >= walk->argc) {
            return SL_ARGUMENT_NO_VALUE;
        }
        out->value = walk->argv[walk->at++];
    }
    return SL_ARGUMENT_OPTION;
}

bool sl_option_is(const char *own, const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if ((own[i] == '-' ? '_' : own[i]) != (name[i] == '-' ? '_' : name[i]) || own[i] == '\0') {
            return false;
        }
    }
    return own[length] == '\0';
}
