// What the libraries show to programs that link them. Everything is compiled with hidden visibility
// (-fvisibility=hidden), so a name leaves its library only where a declaration says so. The macros
// are the same for the library and for its users: no definition has to be given when building one.
#pragma once

// On a class with members that are compiled into the library, with virtual functions, or that is
// thrown or caught across libraries; and on a function that is compiled into the library.
#define ACCELERATE_EXPORT [[gnu::visibility("default")]]

// On the private implementation inside of an exported class, which it would otherwise follow.
#define ACCELERATE_HIDDEN [[gnu::visibility("hidden")]]
