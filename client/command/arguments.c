/* client/command/arguments.c - command lines of sluicectl. */
#include "client/command/command.h"
#include "runtime/sl_parse.h"

#include <stdlib.h>
#include <string.h>

static const struct ctl_option *option_of(const struct ctl_option *options, uint32_t count,
                                          const char *name, size_t length)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

static bool option_take(const struct ctl *ctl, const struct ctl_option *option, const char *value)
{
    struct sl_error why = {.code = SL_ERR_INVALID};
    if (option->text != NULL) {
        *option->text = value;
        return true;
    }
    if (option->count != NULL) {
        if (sl_parse_count(value, option->count, NULL) == SL_OK) {
            return true;
        }
        (void)ctl_wrong(ctl, "--%s '%s' is not a whole number", option->name, value);
        return false;
    }
    sl_err err = option->size != NULL ? sl_parse_size(value, option->size, &why)
                                      : sl_parse_duration(value, option->duration, &why);
    if (err != SL_OK) {
        (void)ctl_wrong(ctl, "--%s: %s", option->name, why.text);
    }
    return err == SL_OK;
}

/* --name or --name=value that is no option of the command: a setting of the node, or unknown. */
static bool setting_take(struct ctl *ctl, const char *name, size_t length, const char *value)
{
    struct sl_error why;
    char underscored[64];
    if (length >= sizeof underscored || ctl->setting_count == CTL_SETTINGS_MAX) {
        (void)ctl_wrong(ctl, "unknown option --%.*s", (int)length, name);
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        underscored[i] = name[i] == '-' ? '_' : name[i];
    }
    underscored[length] = '\0';
    bool known = false;
    for (uint32_t i = 0; i < SL_SETTING_COUNT_OF && !known; i++) {
        known = strcmp(sl_setting_name((enum sl_setting)i), underscored) == 0;
    }
    if (!known) {
        (void)ctl_wrong(ctl, "unknown option --%.*s", (int)length, name);
        return false;
    }
    if (value == NULL) {
        (void)ctl_wrong(ctl, "--%.*s needs a value", (int)length, name);
        return false;
    }
    char source[80];
    (void)snprintf(source, sizeof source, "--%.*s", (int)length, name);
    if (sl_config_set(ctl->config, underscored, value, source, &why) != SL_OK) {
        (void)ctl_wrong(ctl, "%s", why.text);
        return false;
    }
    size_t text_bytes = length + strlen(value) + 2;
    char *text = malloc(text_bytes);
    if (text == NULL) {
        return false;
    }
    (void)snprintf(text, text_bytes, "%s=%s", underscored, value);
    ctl->setting_texts[ctl->setting_count] = text;
    ctl->settings[ctl->setting_count++] = text;
    return true;
}

/* Takes argv[*at], which starts with --, and the value behind it if it has one. */
static bool dashed_take(struct ctl *ctl, int argc, char **argv, int *at,
                        const struct ctl_option *options, uint32_t option_count)
{
    const char *name = argv[*at] + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct ctl_option *option = option_of(options, option_count, name, length);
    bool flag = option != NULL && option->flag != NULL;
    if (option == NULL && length == 4 && memcmp(name, "json", 4) == 0) {
        flag = true;
    }
    if (flag) {
        if (equals != NULL) {
            (void)ctl_wrong(ctl, "--%.*s takes no value", (int)length, name);
            return false;
        }
        *(option != NULL ? option->flag : &ctl->json) = true;
        return true;
    }
    const char *value = equals != NULL ? equals + 1 : *at + 1 < argc ? argv[++*at] : NULL;
    if (length == 6 && memcmp(name, "config", 6) == 0) { /* read before all others */
        return true;
    }
    if (option == NULL) {
        return setting_take(ctl, name, length, value);
    }
    if (value == NULL) {
        (void)ctl_wrong(ctl, "--%s needs a value", option->name);
        return false;
    }
    return option_take(ctl, option, value);
}

static const char *config_argument(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) {
            return argv[i + 1];
        }
        if (strncmp(argv[i], "--config=", 9) == 0) {
            return argv[i] + 9;
        }
    }
    return NULL;
}

bool ctl_parse(struct ctl *ctl, int argc, char **argv, const struct ctl_option *options,
               uint32_t option_count, int *exit_code)
{
    struct sl_error why = {0};
    *exit_code = CTL_WRONG_USE;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            (void)printf("usage: sluicectl %s\n", ctl->command->help);
            *exit_code = CTL_FINE;
            return false;
        }
        if (strcmp(argv[i], "--") == 0) {
            break;
        }
    }
    ctl->config_file = config_argument(argc, argv);
    if (sl_config_create(&ctl->config, &why) != SL_OK ||
        sl_config_load(ctl->config, ctl->config_file, 0, NULL, NULL, &why) != SL_OK) {
        (void)ctl_wrong(ctl, "%s", why.text);
        return false;
    }
    ctl->words = &argv[1]; /* words are gathered in front */
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0) {
            only_words = true;
        } else if (only_words || strncmp(argv[i], "--", 2) != 0) {
            ctl->words[ctl->word_count++] = argv[i];
        } else if (!dashed_take(ctl, argc, argv, &i, options, option_count)) {
            return false;
        }
    }
    if (sl_paths_from(ctl->config, &ctl->paths, &why) != SL_OK) {
        (void)ctl_wrong(ctl, "%s", why.text);
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

struct sl_object_key ctl_key(const char *word)
{
    return (struct sl_object_key){.at = word,
                                  .length = (uint32_t)SL_MIN(strlen(word), (size_t)UINT32_MAX)};
}
