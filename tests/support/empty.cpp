// What a target needs that has nothing but a precompiled header.
