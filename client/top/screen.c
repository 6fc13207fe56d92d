/* client/top/screen.c - see the header. */
#define NCURSES_WIDECHAR 1
#include "client/top/screen.h"
#include "runtime/sl_clock.h"

#include <curses.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WIDTH_MIN       40
#define INTERVAL_NS_MIN (125 * SL_NS_PER_MS)
#define INTERVAL_NS_MAX (32 * SL_NS_PER_S)
#define KEY_ESCAPE      27

struct screen {
    struct top *top;
    struct top_state *state;
    struct top_lines *lines;
    uint32_t scrolled; /* lines of a table above the screen */
    uint64_t due_ns;   /* the next reading */
    bool over, typing; /* typing: a filter */
};

/* ---- drawing ---- */

static void styles_make(void)
{
    if (has_colors()) {
        (void)start_color();
        (void)use_default_colors();
        (void)init_pair(TOP_GOOD, COLOR_GREEN, -1);
        (void)init_pair(TOP_BAD, COLOR_RED, -1);
    }
}

static attr_t style_attributes(enum top_style style)
{
    attr_t colour = has_colors() ? (attr_t)COLOR_PAIR(style) : A_BOLD;
    return style == TOP_PLAIN  ? A_NORMAL
           : style == TOP_HEAD ? A_REVERSE
           : style == TOP_BAD  ? colour | A_BOLD
                               : colour;
}

static void line_draw(int row, const char *text, enum top_style style)
{
    attr_t attributes = style_attributes(style);
    (void)move(row, 0);
    (void)clrtoeol();
    (void)attron((int)attributes);
    (void)addstr(text);
    /* All but the last cell of the row: that of the last row would scroll. */
    for (int x = getcurx(stdscr); style == TOP_HEAD && getcury(stdscr) == row && x + 1 < COLS;
         x++) {
        (void)addch(' ');
    }
    (void)attroff((int)attributes);
}

/* Title and heads stay, the rest moves: all lines up to the last head. */
static uint32_t fixed_count(const struct top_lines *lines)
{
    uint32_t fixed = 0;
    for (uint32_t i = 0; i < lines->count; i++) {
        fixed = lines->lines[i].style == TOP_HEAD ? i + 1 : fixed;
    }
    return fixed;
}

static void footer_draw(const struct screen *screen)
{
    char text[128];
    if (screen->typing) {
        (void)snprintf(text, sizeof text, "names with: %s_  (Enter: done)", screen->state->filter);
    } else {
        (void)snprintf(
            text, sizeof text,
            "1-6 views  p pause  s sort  r reverse  / filter  g group  h help  q quit  +- %.3gs",
            (double)screen->state->interval_ns / 1e9);
    }
    text[SL_MIN(sizeof text - 1, (size_t)SL_MAX(COLS - 1, 0))] = '\0';
    line_draw(LINES - 1, text, TOP_HEAD);
}

static void draw(struct screen *screen)
{
    struct top_lines *lines = screen->lines;
    lines->width = (uint32_t)SL_MAX(COLS, WIDTH_MIN);
    top_view_draw(screen->state, lines);
    uint32_t rows = (uint32_t)SL_MAX(LINES - 1, 1);
    bool table = top_view_columns(screen->state->view) > 0;
    uint32_t fixed = SL_MIN(table ? fixed_count(lines) : 0, rows - 1);
    uint32_t moving = lines->count - SL_MIN(fixed, lines->count);
    uint32_t shown = rows - fixed;
    screen->scrolled = SL_MIN(screen->scrolled, moving > shown ? moving - shown : 0);
    (void)erase();
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t at = row < fixed ? row : row + screen->scrolled;
        if (at < lines->count) {
            line_draw((int)row, lines->lines[at].text, lines->lines[at].style);
        }
    }
    footer_draw(screen);
    (void)refresh();
}

/* ---- keys ---- */

static void view_set(struct screen *screen, enum top_view view)
{
    struct top_state *state = screen->state;
    state->view = view;
    state->sort = top_view_columns(view) > 1 && view != TOP_VIEW_ACTORS ? 1 : 0;
    state->reverse = false;
    screen->scrolled = 0;
    if (view == TOP_VIEW_PEERS) {
        screen->due_ns = 0; /* they are asked for now */
    }
}

static void filter_key(struct screen *screen, int key)
{
    char *filter = screen->state->filter;
    size_t length = strlen(filter);
    if (key == '\n' || key == '\r' || key == KEY_ENTER || key == KEY_ESCAPE) {
        screen->typing = false;
        if (key == KEY_ESCAPE) {
            filter[0] = '\0';
        }
    } else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && length > 0) {
        filter[length - 1] = '\0';
    } else if (key >= ' ' && key < 127 && length + 1 < TOP_FILTER_BYTES) {
        filter[length] = (char)key;
        filter[length + 1] = '\0';
    }
}

static void interval_change(struct screen *screen, bool longer)
{
    uint64_t *interval_ns = &screen->state->interval_ns;
    uint64_t next_ns = longer ? *interval_ns * 2 : *interval_ns / 2;
    if (next_ns >= INTERVAL_NS_MIN && next_ns <= INTERVAL_NS_MAX) {
        *interval_ns = next_ns;
        screen->due_ns = SL_MIN(screen->due_ns, sl_clock_monotonic_ns() + next_ns);
    }
}

static void move_by(struct screen *screen, int lines)
{
    int64_t at = (int64_t)screen->scrolled + lines;
    screen->scrolled = (uint32_t)SL_MAX(at, (int64_t)0);
}

static void key_take(struct screen *screen, int key)
{
    struct top_state *state = screen->state;
    uint32_t columns = top_view_columns(state->view);
    if (screen->typing) {
        filter_key(screen, key);
        return;
    }
    switch (key) {
    case 'q':
    case 'Q':
        screen->over = true;
        break;
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
        view_set(screen, (enum top_view)(key - '1'));
        break;
    case '\t':
        view_set(screen, state->view + 1 >= TOP_VIEW_HELP ? TOP_VIEW_OVERVIEW : state->view + 1);
        break;
    case 'h':
    case '?':
        view_set(screen, TOP_VIEW_HELP);
        break;
    case 'p':
    case ' ':
        state->paused = !state->paused;
        break;
    case 's':
        state->sort = columns > 0 ? (state->sort + 1) % columns : 0;
        break;
    case 'r':
        state->reverse = !state->reverse;
        break;
    case 'g':
        state->grouping = state->grouping == TOP_BY_MODEL ? TOP_BY_PREFIX : TOP_BY_MODEL;
        state->group_count = 0;
        state->groups_whole = false;
        screen->due_ns = 0;
        break;
    case '/':
        screen->typing = true;
        break;
    case '+':
    case '-':
        interval_change(screen, key == '+');
        break;
    case KEY_UP:
    case 'k':
        move_by(screen, -1);
        break;
    case KEY_DOWN:
    case 'j':
        move_by(screen, 1);
        break;
    case KEY_PPAGE:
        move_by(screen, -(LINES / 2));
        break;
    case KEY_NPAGE:
        move_by(screen, LINES / 2);
        break;
    default: /* KEY_RESIZE, and what means nothing: it is drawn anew */
        break;
    }
}

/* ---- the loop ---- */

/* A reading, when it is time; then waits for a key or the next one. */
static void step(struct screen *screen)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (now_ns >= screen->due_ns && !screen->state->paused) {
        (void)top_take(screen->top, false); /* the state has what went wrong, and it is drawn */
        now_ns = sl_clock_monotonic_ns();
        screen->due_ns = sl_deadline_ns(now_ns, screen->state->interval_ns);
    }
    draw(screen);
    uint64_t wait_ns = screen->state->paused ? SL_NS_PER_S : sl_budget_ns(now_ns, screen->due_ns);
    timeout((int)(wait_ns / SL_NS_PER_MS) + 1);
    int key = getch();
    struct pollfd terminal = {.fd = STDIN_FILENO, .events = POLLIN};
    if (key != ERR) {
        key_take(screen, key);
    } else if (poll(&terminal, 1, 0) == 1 &&
               (terminal.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
        screen->over = true; /* the terminal is gone, and nobody is left who could end it */
    }
}

sl_err top_screen_run(struct top *top, struct sl_error *why)
{
    struct screen screen = {.top = top, .state = top_state_of(top)};
    screen.lines = malloc(sizeof *screen.lines);
    if (screen.lines == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a screen");
    }
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    if (terminal == NULL) {
        free(screen.lines);
        return sl_fail(why, SL_ERR_OS, "the terminal '%.60s' is not known; set TERM, or use --once",
                       getenv("TERM") != NULL ? getenv("TERM") : "");
    }
    const char *moves = tigetstr("cup");
    if (moves == NULL || (intptr_t)moves == -1) { /* as "dumb": nothing would be seen */
        (void)endwin();
        delscreen(terminal);
        free(screen.lines);
        return sl_fail(why, SL_ERR_OS,
                       "the terminal '%.60s' cannot move its cursor; set TERM, or use --once",
                       getenv("TERM") != NULL ? getenv("TERM") : "");
    }
    (void)cbreak();
    (void)noecho();
    (void)curs_set(0);
    (void)keypad(stdscr, true);
    (void)set_escdelay(50);
    styles_make();
    screen.due_ns = sl_deadline_ns(sl_clock_monotonic_ns(), SL_NS_PER_S / 4);
    while (!screen.over) {
        step(&screen);
    }
    (void)endwin();
    delscreen(terminal);
    free(screen.lines);
    return SL_OK;
}
