/* client/tools/command/arguments.c - parses command lines of sluicectl, and opens the node. */
#include "client/tools/command/command.h"
#include "runtime/base/sl_arguments.h"
#include "runtime/base/sl_parse.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Numbers of options: those of settings are enum sl_setting, the others follow. */
enum { OPTION_CONFIG = SL_SETTING_COUNT_OF, OPTION_HELP, OPTION_JSON, OPTION_OWN };

struct option_table {
    const struct ctl_option *own; /* the command's */
    uint32_t own_count;
};

static enum sl_option_takes option_find(const void *context, const char *name, size_t length,
                                        int *option)
{
    const struct option_table *table = context;
    enum sl_setting setting;
    for (uint32_t i = 0; i < table->own_count; i++) {
        if (sl_option_is(table->own[i].name, name, length)) {
            *option = OPTION_OWN + (int)i;
            return table->own[i].flag == NULL   ? SL_OPTION_VALUE
                   : table->own[i].text != NULL ? SL_OPTION_MAYBE
                                                : SL_OPTION_NOTHING;
        }
    }
    if (sl_setting_find(name, length, &setting)) {
        *option = (int)setting;
        return SL_OPTION_VALUE;
    }
    *option = sl_option_is("config", name, length) ? OPTION_CONFIG
              : sl_option_is("json", name, length) ? OPTION_JSON
                                                   : OPTION_HELP;
    if (*option == OPTION_HELP && !sl_option_is("help", name, length)) {
        return SL_OPTION_UNKNOWN;
    }
    return *option == OPTION_CONFIG ? SL_OPTION_VALUE : SL_OPTION_NOTHING;
}

static bool own_option_set(const struct ctl *ctl, const struct ctl_option *option,
                           const char *value)
{
    struct sl_error why = {.code = SL_ERR_INVALID};
    if (option->flag != NULL) {
        *option->flag = true;
    }
    if (option->text != NULL) {
        *option->text = value;
    }
    if (option->flag != NULL || option->text != NULL) {
        return true;
    }
    if (option->count != NULL) {
        if (sl_parse_count(value, option->count, NULL) == SL_OK) {
            return true;
        }
        (void)ctl_usage_error(ctl, "--%s '%s' is not a whole number", option->name, value);
        return false;
    }
    sl_err err = option->size != NULL ? sl_parse_size(value, option->size, &why)
                                      : sl_parse_duration(value, option->duration, &why);
    if (err != SL_OK) {
        (void)ctl_usage_error(ctl, "--%s: %s", option->name, why.text);
    }
    return err == SL_OK;
}

/* Sets the setting, and keeps it as text for libsluice. */
static bool setting_take(struct ctl *ctl, enum sl_setting setting, const struct sl_argument *got)
{
    struct sl_error why;
    char source[80];
    const char *name = sl_setting_name(setting);
    if (ctl->setting_count == CTL_SETTINGS_MAX) {
        (void)ctl_usage_error(ctl, "unknown option --%.*s", got->name_length, got->name);
        return false;
    }
    (void)snprintf(source, sizeof source, "--%.*s", got->name_length, got->name);
    if (sl_config_set(ctl->config, name, got->value, source, &why) != SL_OK) {
        (void)ctl_usage_error(ctl, "%s", why.text);
        return false;
    }
    size_t text_bytes = strlen(name) + strlen(got->value) + 2;
    char *text = malloc(text_bytes);
    if (text == NULL) {
        return false;
    }
    (void)snprintf(text, text_bytes, "%s=%s", name, got->value);
    ctl->setting_texts[ctl->setting_count] = text;
    ctl->settings[ctl->setting_count++] = text;
    return true;
}

static bool option_take(struct ctl *ctl, const struct option_table *table,
                        const struct sl_argument *got)
{
    if (got->option >= OPTION_OWN) {
        return own_option_set(ctl, &table->own[got->option - OPTION_OWN], got->value);
    }
    if (got->option < OPTION_CONFIG) {
        return setting_take(ctl, (enum sl_setting)got->option, got);
    }
    ctl->json = ctl->json || got->option == OPTION_JSON; /* --config was read by help_wanted() */
    return true;
}

/* The first walk over the arguments: looks for --help and the first --config. The second walk
 * reports errors. */
static bool help_wanted(struct sl_arguments walk, const char **config_file)
{
    struct sl_argument got;
    enum sl_argument_kind kind;
    while ((kind = sl_arguments_next(&walk, &got)) != SL_ARGUMENT_END && !walk.words_only) {
        if (kind == SL_ARGUMENT_WORD ? strcmp(got.word, "-h") == 0
                                     : kind == SL_ARGUMENT_OPTION && got.option == OPTION_HELP) {
            return true;
        }
        if (kind == SL_ARGUMENT_OPTION && got.option == OPTION_CONFIG && *config_file == NULL) {
            *config_file = got.value;
        }
    }
    return false;
}

static bool arguments_parse(struct ctl *ctl, struct sl_arguments walk,
                            const struct option_table *table)
{
    struct sl_argument got;
    enum sl_argument_kind kind;
    ctl->words = walk.argv + 1; /* words are moved to the front */
    while ((kind = sl_arguments_next(&walk, &got)) != SL_ARGUMENT_END) {
        if (kind == SL_ARGUMENT_WORD) {
            ctl->words[ctl->word_count++] = walk.argv[walk.at - 1];
        } else if (kind == SL_ARGUMENT_OPTION) {
            if (!option_take(ctl, table, &got)) {
                return false;
            }
        } else if (kind == SL_ARGUMENT_UNKNOWN) {
            struct sl_error why;
            (void)sl_setting_unknown(got.name, (size_t)got.name_length, "command line", "option",
                                     &why);
            (void)ctl_usage_error(ctl, "%s", why.text);
            return false;
        } else {
            (void)ctl_usage_error(ctl, "--%.*s%s", got.name_length, got.name,
                                  kind == SL_ARGUMENT_NO_VALUE ? " needs a value"
                                                               : " takes no value");
            return false;
        }
    }
    return true;
}

/* Keeps of root's environment only what settings and scripts read: the user that root becomes can
 * read the environment of the scripts. */
static void environment_filter(void)
{
    static const char *const kept[] = {
        "COLUMNS=",       "CUDA_",           "HOME=",     "LANG",  "LC_",     "LD_LIBRARY_PATH=",
        "LINES=",         "MOONCAKE_",       "NO_COLOR=", "PATH=", "SLUICE_", "TERM",
        "VLLM_MOONCAKE_", "XDG_RUNTIME_DIR="};
    char **to = environ;
    for (char **at = environ; *at != NULL; at++) {
        size_t i = 0;
        while (i < SL_COUNT(kept) && strncmp(*at, kept[i], strlen(kept[i])) != 0) {
            i++;
        }
        if (i < SL_COUNT(kept)) {
            *to++ = *at;
        }
    }
    *to = NULL;
}

/* A node of the system's units has a user of its own and answers only to that user, so root becomes
 * that user. Swappers open an engine's memory by /proc/PID/fd, which still belongs to root after
 * the change of the user unless the process is dumpable. Only commands that register memory become
 * dumpable, since the user can then also see what root's shell passed to them. */
static sl_err service_user_become(struct ctl *ctl, struct sl_error *why)
{
    char dir[64];
    uint32_t owner = 0;
    const char *wanted = sl_config_text(ctl->config, SL_SET_runtime_dir);
    if (geteuid() != 0 ||
        !sl_service_dir(sl_config_text(ctl->config, SL_SET_instance), dir, &owner) || owner == 0 ||
        (wanted[0] != '\0' && strcmp(wanted, dir) != 0)) {
        return SL_OK;
    }
    const struct passwd *user = getpwuid(owner);
    if (user == NULL) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "'%s' belongs to uid %u, for which there is no user",
                       dir, owner);
    }
    environment_filter();
    if (initgroups(user->pw_name, user->pw_gid) != 0 || setgid(user->pw_gid) != 0 ||
        setuid(owner) != 0 ||
        (ctl->command->registers && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0)) {
        return sl_fail_os(why, errno, "become user '%s', the owner of '%s'", user->pw_name, dir);
    }
    (void)snprintf(ctl->asks_as, sizeof ctl->asks_as, "%s", user->pw_name);
    return SL_OK;
}

static bool words_fit(const struct ctl *ctl)
{
    const struct ctl_command *command = ctl->command;
    bool fit = ctl->word_count >= command->words_min && ctl->word_count <= command->words_max;
    if (!fit && command->words != NULL) {
        (void)ctl_usage_error(ctl, "%s", command->words);
    } else if (!fit) {
        (void)ctl_usage_error(ctl, "'%s' is not an option", ctl->words[0]);
    }
    return fit;
}

bool ctl_parse(struct ctl *ctl, int argc, char **argv, const struct ctl_option *options,
               uint32_t option_count, int *exit_code)
{
    struct sl_error why = {0};
    *exit_code = CTL_WRONG_USE;
    const struct option_table table = {options, option_count};
    const struct sl_arguments walk = {
        .argc = argc, .argv = argv, .find = option_find, .table = &table, .at = 1};
    if (help_wanted(walk, &ctl->config_file)) {
        (void)printf("usage: sluicectl %s\n", ctl->command->help);
        *exit_code = CTL_SUCCESS;
        return false;
    }
    if (sl_config_create(&ctl->config, &why) != SL_OK ||
        sl_config_load(ctl->config, ctl->config_file, 0, NULL, NULL, &why) != SL_OK) {
        (void)ctl_usage_error(ctl, "%s", why.text);
        return false;
    }
    if (!arguments_parse(ctl, walk, &table) || !words_fit(ctl)) {
        return false;
    }
    if (service_user_become(ctl, &why) != SL_OK ||
        sl_paths_from(ctl->config, &ctl->paths, &why) != SL_OK) {
        (void)ctl_usage_error(ctl, "%s", why.text);
        return false;
    }
    return true;
}

sl_err ctl_open(const struct ctl *ctl, bool read_only, struct sl_client **out, struct sl_error *why)
{
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .config = ctl->config_file,
                                              .read_only = read_only,
                                              .settings = ctl->settings};
    return sl_client_open(&options, out, why);
}

int ctl_query(const struct ctl *ctl, ctl_query_fn ask, const void *context)
{
    struct sl_error why = {0};
    struct sl_client *client = NULL;
    json_t *answer = NULL;
    sl_err err = ctl_open(ctl, false, &client, &why);
    err = err == SL_OK ? ask(ctl, client, context, &answer, &why) : err;
    sl_client_close(&client);
    if (err == SL_OK) {
        return ctl_answer(ctl, answer);
    }
    json_decref(answer);
    return ctl_failed(ctl, &why);
}

struct sl_object_key ctl_key(const char *word)
{
    return (struct sl_object_key){.at = word,
                                  .length = (uint32_t)SL_MIN(strlen(word), (size_t)UINT32_MAX)};
}

sl_err ctl_word_keys(const struct ctl *ctl, struct sl_object_key **keys, sl_err **codes,
                     struct sl_error *why)
{
    size_t count = (size_t)ctl->word_count;
    *keys = calloc(count, sizeof **keys);
    *codes = calloc(count, sizeof **codes);
    if (*keys == NULL || *codes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%s: %zu keys", ctl->command->name, count);
    }
    for (size_t i = 0; i < count; i++) {
        (*keys)[i] = ctl_key(ctl->words[i]);
    }
    return SL_OK;
}
